import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/** Runs statements in Spark with Apache Iceberg's runtime: LAKE STATEMENT...; prints the rows of each. */
public class Query {
  public static void main(String[] args) {
    SparkSession spark =
        SparkSession.builder()
            .master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
            .config("spark.sql.catalog.barnabas", "org.apache.iceberg.spark.SparkCatalog")
            .config("spark.sql.catalog.barnabas.type", "jdbc")
            .config("spark.sql.catalog.barnabas.uri", "jdbc:sqlite:" + args[0] + "/catalog.db")
            .config("spark.sql.catalog.barnabas.warehouse", "file://" + args[0])
            .getOrCreate();
    for (int n = 1; n < args.length; n++) {
      for (Row row : spark.sql(args[n]).collectAsList()) {
        System.out.println("row " + row.mkString(" "));
      }
    }
    spark.stop();
  }
}
