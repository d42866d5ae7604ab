import java.io.IOException;
import java.net.Socket;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.events.EventCleanerTask;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** A Hive metastore that keeps everything in memory: PORT WAREHOUSE. */
public class Serve {
  public static void main(String[] args) throws Throwable {
    Map.of(
            "metastore.warehouse.dir", args[1],
            "metastore.thrift.bind.host", "127.0.0.1",
            "javax.jdo.option.ConnectionURL", "jdbc:derby:memory:metastore;create=true",
            "javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll", "true",
            "metastore.schema.verification", "false",
            // The defaults of these two are classes of Hive itself.
            "metastore.expression.proxy", DefaultPartitionExpressionProxy.class.getName(),
            "metastore.task.threads.always", EventCleanerTask.class.getName())
        .forEach(System::setProperty);
    Configuration settings = MetastoreConf.newMetastoreConf();
    TxnDbUtil.prepDb(settings); // the tables of locks, which are not made as needed
    new Thread(() -> awaitStart(Integer.parseInt(args[0]))).start();
    HiveMetaStore.main(new String[] {"-p", args[0]});
  }

  private static void awaitStart(int port) {
    while (true) {
      try {
        new Socket("127.0.0.1", port).close();
        System.out.println("port " + port);
        return;
      } catch (IOException error) {
        LockSupport.parkNanos(100_000_000);
      }
    }
  }
}
