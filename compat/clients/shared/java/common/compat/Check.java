package compat;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What was read, checked as it comes; {@link #finish} says whether it is what was written. Safe for threads. */
final class Check {
    private record Place(int partition, long offset) implements Comparable<Place> {
        @Override
        public int compareTo(Place other) {
            int byPartition = Integer.compare(partition, other.partition);
            return byPartition != 0 ? byPartition : Long.compare(offset, other.offset);
        }
    }

    private final boolean headers;
    private final TreeMap<Place, Integer> placed = new TreeMap<>();
    private final BitSet numbers = new BitSet();
    private final Map<Integer, Long> lastOffset = new HashMap<>();
    private int repeated;

    Check(boolean headers) {
        this.headers = headers;
    }

    /** Checks one record's content; returns its number. */
    synchronized int add(Read read) {
        String place = "partition " + read.partition() + " offset " + read.offset();
        ensure(read.value() != null, place + ": no value");
        String text = new String(read.value(), UTF_8);
        int number = Integer.parseInt(text.substring(0, text.indexOf(':')));
        Numbered wanted = Numbered.of(number);
        ensure(Arrays.equals(read.key(), wanted.key()), place + ": key of another record than " + number);
        ensure(Arrays.equals(read.value(), wanted.value()), place + ": value " + text);
        if (headers) {
            ensure(sameHeaders(read.headers(), wanted.headers()), place + ": headers " + read.headers());
        }
        Integer known = placed.putIfAbsent(new Place(read.partition(), read.offset()), number);
        ensure(known == null || known == number, place + ": record " + number + ", but earlier it was " + known);
        Long before = lastOffset.put(read.partition(), read.offset());
        if (before != null && read.offset() <= before) {
            repeated++;
        }
        numbers.set(number);
        return number;
    }

    private static boolean sameHeaders(
            List<Map.Entry<String, byte[]>> got, List<Map.Entry<String, byte[]>> wanted) {
        if (got == null || got.size() != wanted.size()) {
            return false;
        }
        for (int i = 0; i < got.size(); i++) {
            boolean same = got.get(i).getKey().equals(wanted.get(i).getKey())
                    && Arrays.equals(got.get(i).getValue(), wanted.get(i).getValue());
            if (!same) {
                return false;
            }
        }
        return true;
    }

    /** How many different places were read. */
    synchronized int count() {
        return placed.size();
    }

    synchronized int repeated() {
        return repeated;
    }

    /** Whether the numbers first to last-1 were all seen. */
    synchronized boolean has(int first, int last) {
        return numbers.nextClearBit(first) >= last;
    }

    void finish(int first, int last) {
        finish(range(first, last), false);
    }

    /** Each wanted number is at one offset, nothing else is there, order and partitions are right. */
    synchronized void finish(BitSet wanted, boolean repeats) {
        BitSet missing = (BitSet) wanted.clone();
        missing.andNot(numbers);
        ensure(missing.isEmpty(), missing.cardinality() + " of " + wanted.cardinality()
                + " records are missing, the first is " + missing.nextSetBit(0));
        BitSet extra = (BitSet) numbers.clone();
        extra.andNot(wanted);
        ensure(extra.isEmpty(),
                extra.cardinality() + " records should not be there, the first is " + extra.nextSetBit(0));
        int twice = placed.size() - numbers.cardinality();
        ensure(twice == 0, twice + " records were written twice");
        ensure(repeats || repeated == 0, repeated + " records were delivered again or out of order");
        checkOrder();
    }

    private void checkOrder() {
        Map<Integer, Integer> last = new HashMap<>();
        Map<Integer, Integer> homes = new HashMap<>();
        placed.forEach((place, number) -> {
            int before = last.merge(place.partition(), number, (old, now) -> old < now ? now : -1);
            ensure(before >= 0, place + ": " + number + " comes too late");
            int home = homes.computeIfAbsent(number % Numbered.KEYS, key -> place.partition());
            ensure(home == place.partition(), "key-" + number % Numbered.KEYS + " is in two partitions");
        });
    }

    static BitSet range(int first, int last) {
        BitSet set = new BitSet();
        set.set(first, last);
        return set;
    }

    static void ensure(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
