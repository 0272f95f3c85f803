package relstate;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Delta's log in S3: the file of a commit is made by a put that S3 refuses where there is one already. */
public class ConditionalS3LogStore extends io.delta.storage.HadoopFileSystemLogStore {

    public ConditionalS3LogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            content.write((((String) actions.next()) + "\n").getBytes("UTF-8"));
        }
        FileSystem fs = path.getFileSystem(conf);
        FSDataOutputStreamBuilder builder = (FSDataOutputStreamBuilder) fs.createFile(path);
        builder.overwrite(true);
        builder.recursive();
        if (!overwrite.booleanValue()) {
            builder.must("fs.option.create.conditional.overwrite", true);
        }
        FSDataOutputStream stream;
        try {
            stream = (FSDataOutputStream) builder.build();
        } catch (IllegalArgumentException unknown) {
            throw new IOException("Hadoop before 3.4.2, as in Spark 4.0, cannot commit to S3 safely: use Spark 4.1 or later", unknown);
        }
        // All of it is there with the put at the end, or nothing.
        stream.write(content.toByteArray());
        try {
            stream.close();
        } catch (IOException error) {
            if (!overwrite.booleanValue() && isRefused(error)) {
                throw new FileAlreadyExistsException(path.toString());
            }
            throw error;
        }
    }

    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return Boolean.FALSE;
    }

    /** Whether S3 has answered that the file was there before (412). */
    private static boolean isRefused(IOException error) {
        String said = error.toString();
        return said.contains("Status Code: 412") || said.contains("PreconditionFailed") || said.contains("FileAlreadyExists");
    }
}
