package compat;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

/** What is kept in ZooKeeper, read with its own client. */
final class Znodes {
    final String connect;
    private final ZooKeeper zookeeper;

    Znodes(String connect) throws IOException, InterruptedException {
        this.connect = connect;
        CountDownLatch connected = new CountDownLatch(1);
        zookeeper = new ZooKeeper(connect, 20_000, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        Check.ensure(connected.await(20, java.util.concurrent.TimeUnit.SECONDS), "no session with " + connect);
    }

    /** The text of a znode, null if there is none. */
    String text(String path) {
        try {
            byte[] data = zookeeper.getData(path, false, null);
            return data == null ? "" : new String(data, UTF_8);
        } catch (KeeperException.NoNodeException error) {
            return null;
        } catch (KeeperException | InterruptedException error) {
            throw new AssertionError(path, error);
        }
    }

    List<String> children(String path) {
        try {
            return zookeeper.getChildren(path, false);
        } catch (KeeperException.NoNodeException error) {
            return List.of();
        } catch (KeeperException | InterruptedException error) {
            throw new AssertionError(path, error);
        }
    }

    /** Which thread of which member owns each partition. */
    Map<Integer, String> owners(String group, String topic) {
        Map<Integer, String> found = new HashMap<>();
        String path = "/consumers/" + group + "/owners/" + topic;
        for (String partition : children(path)) {
            String owner = text(path + "/" + partition);
            if (owner != null) {
                found.put(Integer.parseInt(partition), owner);
            }
        }
        return found;
    }

    /** The offsets of a group that are kept here, added up; -1 when there are none. */
    long committed(String group, String topic) {
        String path = "/consumers/" + group + "/offsets/" + topic;
        List<String> partitions = children(path);
        return partitions.isEmpty() ? -1
                : partitions.stream().mapToLong(partition -> Long.parseLong(text(path + "/" + partition))).sum();
    }
}
