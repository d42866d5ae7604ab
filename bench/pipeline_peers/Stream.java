import static org.apache.spark.sql.avro.functions.from_avro;
import static org.apache.spark.sql.functions.callUDF;
import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.expr;
import static org.apache.spark.sql.functions.from_json;
import static org.apache.spark.sql.functions.lit;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.streaming.DataStreamWriter;
import org.apache.spark.sql.streaming.Trigger;
import org.apache.spark.sql.types.StructType;

/** Streams a topic into an Iceberg table: BOOTSTRAP TOPIC FORMAT LAKE SCHEMA OFFSETS-PER-BATCH once|follow. */
public class Stream {
  public static void main(String[] args) throws Exception {
    String bootstrap = args[0], topic = args[1], format = args[2], lake = args[3], schema = args[4];
    SparkSession spark =
        SparkSession.builder()
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.catalog.barnabas", "org.apache.iceberg.spark.SparkCatalog")
            .config("spark.sql.catalog.barnabas.type", "jdbc")
            .config("spark.sql.catalog.barnabas.uri", "jdbc:sqlite:" + lake + "/catalog.db")
            .config("spark.sql.catalog.barnabas.warehouse", "file://" + lake)
            .config("spark.sql.catalog.barnabas.jdbc.schema-version", "V1")
            .getOrCreate();
    String table = "barnabas.barnabas." + topic;
    String columns = Files.readString(Path.of(schema + "/columns.sql")).strip();
    spark.sql("CREATE TABLE IF NOT EXISTS " + table + " (" + columns + ") USING iceberg");
    Dataset<Row> records =
        spark.readStream()
            .format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(args[5].equals("0") ? Map.of() : Map.of("maxOffsetsPerTrigger", args[5]))
            .load();
    DataStreamWriter<Row> writer =
        records
            .select(event(spark, format, columns, schema).as("event"))
            .select("event.*")
            .writeStream()
            .option("checkpointLocation", lake + "/checkpoint")
            .format("iceberg")
            .outputMode("append");
    if (args[6].equals("once")) {
      writer = writer.trigger(Trigger.AvailableNow());
    }
    writer.toTable(table).awaitTermination();
    spark.stop();
  }

  private static Column event(SparkSession spark, String format, String columns, String schema) throws Exception {
    if (format.equals("json")) {
      return from_json(col("value").cast("string"), StructType.fromDDL(columns));
    }
    if (format.equals("avro")) { // behind a byte and the id of a schema
      return from_avro(expr("substring(value, 6)"), Files.readString(Path.of(schema + "/view.avsc")));
    }
    UDF1<byte[], Row> decode = new Messages(schema + "/view.desc")::row;
    spark.udf().register("decode", decode, StructType.fromDDL(columns));
    return callUDF("decode", expr("substring(value, 7)"));
  }
}
