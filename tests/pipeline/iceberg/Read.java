import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.jdbc.JdbcCatalog;

/**
 * Reads with Apache Iceberg's own library: LAKE TABLE FROM_MS.
 *
 * <p>Prints the ledger's version of each snapshot, then partition, offset, member and device of the rows from a time on.
 */
public class Read {
  public static void main(String[] args) throws Exception {
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize(
        "barnabas", Map.of("uri", "jdbc:sqlite:" + args[0] + "/catalog.db", "warehouse", "file://" + args[0]));
    Table table = catalog.loadTable(TableIdentifier.parse(args[1]));
    for (Snapshot snapshot : table.snapshots()) {
      System.out.println("version " + snapshot.summary().get("barnabas.ledger-version"));
    }
    var asked = IcebergGenerics.read(table).where(Expressions.greaterThanOrEqual("ts", Long.parseLong(args[2])));
    try (CloseableIterable<Record> rows = asked.build()) {
      for (Record row : rows) {
        System.out.printf("row %s %s %s %s%n",
            row.getField("_topic_partition"), row.getField("_offset"), row.getField("member"), row.getField("device"));
      }
    }
  }
}
