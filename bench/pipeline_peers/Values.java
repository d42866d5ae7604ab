import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.storage.Converter;

/** Converters of flat Avro and Protobuf values in a registry's framing, whose one schema is read from a file. */
public abstract class Values implements Converter {
  protected Schema schema;

  @Override
  public byte[] fromConnectData(String topic, Schema schema, Object value) {
    throw new UnsupportedOperationException("only sinks");
  }

  @Override
  public SchemaAndValue toConnectData(String topic, byte[] value) {
    try {
      return new SchemaAndValue(schema, decode(value));
    } catch (IOException error) {
      throw new org.apache.kafka.connect.errors.DataException(error);
    }
  }

  protected abstract Struct decode(byte[] value) throws IOException;

  /** The column of a field; Avro and Protobuf give the types that are used here the same names. */
  protected static Schema column(Enum<?> type, boolean isOptional) {
    SchemaBuilder column =
        SchemaBuilder.type(
            switch (type.name()) {
              case "LONG" -> Schema.Type.INT64;
              case "INT" -> Schema.Type.INT32;
              case "DOUBLE" -> Schema.Type.FLOAT64;
              case "BOOLEAN" -> Schema.Type.BOOLEAN;
              default -> Schema.Type.STRING;
            });
    return isOptional ? column.optional().build() : column.build();
  }

  public static class Avro extends Values {
    private GenericDatumReader<GenericData.Record> reader;
    private GenericData.Record row;
    private BinaryDecoder decoder;

    @Override
    public void configure(Map<String, ?> configs, boolean isKey) {
      try {
        String text = Files.readString(Path.of(configs.get("schema.file").toString()));
        org.apache.avro.Schema avro = new org.apache.avro.Schema.Parser().parse(text);
        reader = new GenericDatumReader<>(avro);
        SchemaBuilder struct = SchemaBuilder.struct().name(avro.getName());
        for (org.apache.avro.Schema.Field field : avro.getFields()) {
          boolean isNullable = field.schema().isNullable();
          org.apache.avro.Schema type = isNullable ? field.schema().getTypes().get(1) : field.schema();
          struct.field(field.name(), column(type.getType(), isNullable));
        }
        schema = struct.build();
      } catch (IOException error) {
        throw new org.apache.kafka.common.config.ConfigException(error.getMessage());
      }
    }

    @Override
    protected Struct decode(byte[] value) throws IOException {
      decoder = DecoderFactory.get().binaryDecoder(value, 5, value.length - 5, decoder);
      row = reader.read(row, decoder);
      Struct struct = new Struct(schema);
      for (Field field : schema.fields()) {
        Object cell = row.get(field.index());
        struct.put(field, cell instanceof CharSequence ? cell.toString() : cell);
      }
      return struct;
    }
  }

  public static class Protobuf extends Values {
    private Descriptor type;

    @Override
    public void configure(Map<String, ?> configs, boolean isKey) {
      try {
        byte[] bytes = Files.readAllBytes(Path.of(configs.get("schema.file").toString()));
        FileDescriptorSet files = FileDescriptorSet.parseFrom(bytes);
        type = FileDescriptor.buildFrom(files.getFile(0), new FileDescriptor[0]).getMessageTypes().get(0);
        SchemaBuilder struct = SchemaBuilder.struct().name(type.getName());
        for (FieldDescriptor field : type.getFields()) {
          struct.field(field.getName(), column(field.getJavaType(), field.hasPresence()));
        }
        schema = struct.build();
      } catch (Exception error) {
        throw new org.apache.kafka.common.config.ConfigException(error.getMessage());
      }
    }

    @Override
    protected Struct decode(byte[] value) throws IOException {
      DynamicMessage message =
          DynamicMessage.parseFrom(
              type, com.google.protobuf.CodedInputStream.newInstance(value, 6, value.length - 6));
      Struct struct = new Struct(schema);
      for (FieldDescriptor field : type.getFields()) {
        if (!field.hasPresence() || message.hasField(field)) {
          struct.put(field.getName(), message.getField(field));
        }
      }
      return struct;
    }
  }
}
