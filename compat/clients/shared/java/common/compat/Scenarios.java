package compat;

import static compat.Cases.COUNT;
import static compat.Cases.PARTITIONS;
import static compat.Cases.pause;
import static compat.Cases.until;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** The cases that need several members, or a broker that comes and goes. */
final class Scenarios {
    /** A consumer of a group; used by one thread only. */
    interface Member {
        /** What came within a moment. */
        List<Read> poll();

        /** The partitions that this member has now. */
        Set<Integer> assigned();

        /** Commits what was read and leaves the group. */
        void close();
    }

    interface Opener {
        Member open();
    }

    /** A producer that stays open; {@code send} waits until everything is acknowledged. */
    interface Sender {
        void send(int first, int last) throws Exception;
    }

    /** A consumer of one group reads until {@code goal} records were seen, commits and closes. */
    interface ReadAndCommit {
        void until(Check check, int goal) throws Exception;
    }

    /** A member in its own thread, since a client may block in a poll until the whole group has joined. */
    private static final class Running extends Thread {
        volatile Set<Integer> partitions = Set.of();
        volatile int read;
        private final Opener opener;
        private final Check check;
        private volatile boolean leave;
        private volatile Throwable error;

        Running(String name, Opener opener, Check check) {
            super(name);
            this.opener = opener;
            this.check = check;
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try {
                Member member = opener.open();
                while (!leave) {
                    List<Read> batch = member.poll();
                    batch.forEach(check::add);
                    read += batch.size();
                    partitions = member.assigned();
                }
                member.close();
            } catch (Throwable thrown) {
                thrown.printStackTrace();
                error = thrown;
            }
        }

        void quit() throws InterruptedException {
            leave = true;
            join(30_000);
            Check.ensure(!isAlive(), getName() + " does not leave the group");
            raise();
        }

        void raise() {
            if (error != null) {
                throw new AssertionError(getName() + ": " + error, error);
            }
        }
    }

    private Scenarios() {}

    /** The case consume-group: one member, then two, then one; each time something to read. */
    static String share(Opener opener, Sender produce, boolean headers) throws Exception {
        Check check = new Check(headers);
        Set<Integer> everything = IntStream.range(0, PARTITIONS).boxed().collect(Collectors.toSet());
        produce.send(0, 1000);
        Running first = new Running("first", opener, check);
        List<Running> members = new ArrayList<>(List.of(first));
        Cases.Step step = () -> {
            members.forEach(Running::raise);
            pause();
        };
        until(() -> check.has(0, 1000) && first.partitions.equals(everything), step, "the first member reads all");
        Running second = new Running("second", opener, check);
        members.add(second);
        until(() -> split(first.partitions, second.partitions, everything), step, "two members share the partitions");
        produce.send(1000, 2000);
        until(() -> check.has(0, 2000), step, "two members read all");
        Check.ensure(second.read > 0, "the second member has read nothing");
        members.remove(second);
        second.quit();
        until(() -> first.partitions.equals(everything), step, "the first member has all partitions again");
        produce.send(2000, 3000);
        until(() -> check.has(0, 3000), step, "the remaining member reads all");
        first.quit();
        check.finish(Check.range(0, 3000), true);
        return "3000 records, " + second.read + " by the second member, " + check.repeated()
                + " again after a rebalance";
    }

    private static boolean split(Set<Integer> mine, Set<Integer> other, Set<Integer> everything) {
        Set<Integer> both = new HashSet<>(mine);
        both.addAll(other);
        return !mine.isEmpty() && !other.isEmpty() && mine.size() + other.size() == both.size()
                && both.equals(everything);
    }

    /** The case commit-resume: two consumers of a group, one after the other. */
    static String resume(Sender produce, ReadAndCommit consumer, boolean headers) throws Exception {
        produce.send(0, COUNT);
        Check check = new Check(headers);
        consumer.until(check, COUNT / 3);
        int before = check.count();
        consumer.until(check, COUNT);
        check.finish(0, COUNT);
        return before + " records, commit, restart, " + (COUNT - before) + " more";
    }

    /** The cases broker-restart and broker-kill; {@code stays} is null for a client without groups. */
    static String outlive(String how, Sender producer, Opener stays, ReadAndCommit consumer, boolean headers)
            throws Exception {
        int half = COUNT / 2;
        Check check = new Check(headers);
        Check followed = new Check(headers);
        producer.send(0, half);
        Running member = stays == null ? null : new Running("the member that stays", stays, followed);
        follow(member, followed, half);
        consumer.until(check, COUNT / 3);
        int before = check.count();
        Cases.restartBroker(how);
        producer.send(half, COUNT);
        consumer.until(check, COUNT);
        check.finish(0, COUNT);
        follow(member, followed, COUNT);
        if (member != null) {
            member.quit();
        }
        return before + " records, commit, broker's restart, " + (COUNT - before) + " more by a new member";
    }

    private static void follow(Running member, Check followed, int goal) throws Exception {
        if (member == null) {
            return;
        }
        Cases.Step step = () -> {
            member.raise();
            pause();
        };
        until(() -> followed.has(0, goal), step, "the member that stays reads " + goal + " records");
        followed.finish(Check.range(0, goal), true);
    }
}
