import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/** Decodes messages of one type to rows, as spark-protobuf does: by a descriptor that is read from a file. */
public class Messages implements Serializable {
  private final String path;
  private transient Descriptor type;

  public Messages(String path) {
    this.path = path;
  }

  public Row row(byte[] value) throws Exception {
    if (type == null) {
      FileDescriptorSet files = FileDescriptorSet.parseFrom(Files.readAllBytes(Path.of(path)));
      type = FileDescriptor.buildFrom(files.getFile(0), new FileDescriptor[0]).getMessageTypes().get(0);
    }
    DynamicMessage message = DynamicMessage.parseFrom(type, value);
    Object[] cells = new Object[type.getFields().size()];
    for (FieldDescriptor field : type.getFields()) {
      boolean isNull = field.hasPresence() && !message.hasField(field);
      cells[field.getIndex()] = isNull ? null : message.getField(field);
    }
    return RowFactory.create(cells);
  }
}
