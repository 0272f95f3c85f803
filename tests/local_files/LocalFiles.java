package relstate.tests;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local files, by Java where Hadoop without native code starts a process: chmod and readlink. */
public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
            } else {
                String text = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
                    + permission.getOtherAction().SYMBOL;
                Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
            }
        }

        public FileStatus getFileLinkStatus(Path path) throws IOException {
            boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
            return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
        }
    }

    /** The same files for FileContext, by which Delta commits. */
    public static class Context extends ChecksumFs {
        public Context(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(new RawContext(uri, conf));
        }
    }

    public static class RawContext extends DelegateToFileSystem {
        public RawContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(uri, new Raw(), conf, "file", false);
        }

        public int getUriDefaultPort() {
            return -1;
        }

        public FsServerDefaults getServerDefaults(Path path) throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        public FsServerDefaults getServerDefaults() throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        public boolean isValidName(String name) {
            return true;
        }
    }
}
