package relstate;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import java.util.zip.CheckedInputStream;
import java.util.zip.CheckedOutputStream;

import org.apache.spark.sql.catalyst.expressions.codegen.ByteCodeStats;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$;
import org.apache.spark.util.NonFateSharingCache;
import org.apache.spark.util.ParentClassLoader;
import org.apache.spark.util.Utils$;
import org.codehaus.commons.compiler.util.reflect.ByteArrayClassLoader;
import org.sparkproject.guava.cache.CacheLoader;
import scala.Tuple2;

/**
 * Code that Spark has generated and compiled, kept for other class loaders and for later processes.
 *
 * Spark compiles a stage's code once for the driver's class loader and once for that of tasks, and again in each process.
 * Compiled classes depend on nothing but the code and the release of Spark.
 */
public final class GeneratedCode extends CacheLoader {
    private static final int FORMAT = 1;
    private static final long DAY = 24L * 60 * 60 * 1000;
    private static volatile GeneratedCode installed;

    private final CacheLoader compiler;
    private final Map known = new ConcurrentHashMap();
    private final AtomicInteger compiled = new AtomicInteger();
    private final AtomicInteger reused = new AtomicInteger();
    private final File file;
    private final long limit;
    private volatile boolean isNew = false;

    /**
     * @param compiler what compiles a piece that is not kept
     * @param path file of kept classes; it need not exist
     * @param limit bytes of it at most; classes that were used longest ago are left out
     */
    public GeneratedCode(CacheLoader compiler, String path, long limit) {
        this.compiler = compiler;
        this.file = new File(path);
        this.limit = limit;
    }

    /**
     * Have Spark ask here before it compiles; again in the same JVM changes nothing.
     *
     * @param path file of kept classes, read now and written when the JVM ends
     * @param limit bytes of it at most
     */
    public static synchronized void install(String path, long limit) throws Exception {
        if (installed != null) {
            return;
        }
        Field ofGenerator = CodeGenerator$.class.getDeclaredField("cache");
        ofGenerator.setAccessible(true);
        Object cache = ((NonFateSharingCache) ofGenerator.get(null)).cache();
        Object local = valueOf(cache, "localCache");
        Field loader = fieldOf(local.getClass(), "defaultLoader");
        GeneratedCode made = new GeneratedCode((CacheLoader) loader.get(local), path, limit);
        made.read();
        loader.set(local, made);
        installed = made;
        Runtime.getRuntime().addShutdownHook(new Writer(made));
    }

    /** Pieces of code that were compiled, and pieces for which kept classes were taken, since the JVM began. */
    public static int[] counts() {
        GeneratedCode now = installed;
        return now == null ? new int[] {0, 0} : new int[] {now.compiled.get(), now.reused.get()};
    }

    /** Pieces that are kept. */
    public int size() {
        return known.size();
    }

    public Object load(Object key) throws Exception {
        CodeAndComment code = (CodeAndComment) ((Tuple2) key)._2();
        String digest = digestOf(code.body());
        Piece kept = (Piece) known.get(digest);
        if (kept != null) {
            Object made = kept.made();
            if (made != null) {
                reused.incrementAndGet();
                if (kept.use()) {
                    isNew = true;
                }
                return made;
            }
            known.remove(digest);
        }
        Object made = compiler.load(key);
        compiled.incrementAndGet();
        Piece piece = Piece.of((Tuple2) made);
        if (piece != null) {
            known.put(digest, piece);
            isNew = true;
        }
        return made;
    }

    private static String digestOf(String text) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
        return Base64.getEncoder().encodeToString(digest);
    }

    /** Read the file; a damaged one is as none. */
    public void read() {
        if (!file.isFile()) {
            return;
        }
        Map found = new HashMap();
        try {
            CheckedInputStream checked = new CheckedInputStream(new BufferedInputStream(new FileInputStream(file)), new CRC32());
            DataInputStream in = new DataInputStream(checked);
            try {
                if (in.readInt() != FORMAT) {
                    return;
                }
                int count = in.readInt();
                for (int i = 0; i < count; i++) {
                    String digest = in.readUTF();
                    found.put(digest, Piece.read(in, file.length()));
                }
                long sum = checked.getChecksum().getValue();
                if (in.readLong() != sum) {
                    return;
                }
            } finally {
                in.close();
            }
        } catch (IOException damaged) {
            return;
        }
        known.putAll(found);
    }

    /** Write the file if it has changed. */
    public void write() throws IOException {
        if (!isNew) {
            return;
        }
        List entries = new ArrayList(known.entrySet());
        Collections.sort(entries, new NewestFirst());
        int count = 0;
        long size = 0;
        for (Iterator i = entries.iterator(); i.hasNext(); count++) {
            size += ((Piece) ((Map.Entry) i.next()).getValue()).size();
            if (size > limit) {
                break;
            }
        }
        file.getAbsoluteFile().getParentFile().mkdirs();
        File written = File.createTempFile(file.getName(), ".tmp", file.getAbsoluteFile().getParentFile());
        try {
            OutputStream target = new BufferedOutputStream(new FileOutputStream(written));
            CheckedOutputStream checked = new CheckedOutputStream(target, new CRC32());
            DataOutputStream out = new DataOutputStream(checked);
            try {
                out.writeInt(FORMAT);
                out.writeInt(count);
                for (int i = 0; i < count; i++) {
                    Map.Entry entry = (Map.Entry) entries.get(i);
                    out.writeUTF((String) entry.getKey());
                    ((Piece) entry.getValue()).write(out);
                }
                out.flush();
                out.writeLong(checked.getChecksum().getValue());
            } finally {
                out.close();
            }
            Files.move(written.toPath(), file.toPath(), StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        } finally {
            written.delete();
        }
    }

    private static Object valueOf(Object holder, String name) throws Exception {
        return fieldOf(holder.getClass(), name).get(holder);
    }

    private static Field fieldOf(Class type, String name) throws NoSuchFieldException {
        for (Class at = type; at != null; at = at.getSuperclass()) {
            Field[] all = at.getDeclaredFields();
            for (int i = 0; i < all.length; i++) {
                if (all[i].getName().equals(name)) {
                    all[i].setAccessible(true);
                    return all[i];
                }
            }
        }
        throw new NoSuchFieldException(type.getName() + "." + name);
    }

    /** The classes of one piece of code. */
    private static final class Piece {
        private final Map classes;
        private final String first;
        private final ByteCodeStats stats;
        private volatile long used;

        Piece(Map classes, String first, ByteCodeStats stats, long used) {
            this.classes = classes;
            this.first = first;
            this.stats = stats;
            this.used = used;
        }

        /** What Spark's compiler made; null if its classes cannot be had. */
        static Piece of(Tuple2 made) {
            Class type = made._1().getClass();
            if (!(type.getClassLoader() instanceof ByteArrayClassLoader)) {
                return null;
            }
            try {
                Map classes = (Map) valueOf(type.getClassLoader(), "classes");
                return new Piece(classes, type.getName(), (ByteCodeStats) made._2(), System.currentTimeMillis());
            } catch (Exception problem) {
                return null;
            }
        }

        /** The same for the class loader of this thread; null if the classes do not fit what is there. */
        Object made() {
            ClassLoader parent = new ParentClassLoader(Utils$.MODULE$.getContextOrSparkClassLoader());
            try {
                Class type = new ByteArrayClassLoader(classes, parent).loadClass(first);
                return new Tuple2(type.getConstructor(new Class[0]).newInstance(new Object[0]), stats);
            } catch (Exception problem) {
                return null;
            } catch (LinkageError problem) {
                return null;
            }
        }

        /** Note a use; true if the last one is a day ago or more. */
        boolean use() {
            long now = System.currentTimeMillis();
            boolean isLongAgo = now - used >= DAY;
            if (isLongAgo) {
                used = now;
            }
            return isLongAgo;
        }

        long size() {
            long size = 200;
            for (Iterator i = classes.entrySet().iterator(); i.hasNext();) {
                Map.Entry entry = (Map.Entry) i.next();
                size += ((String) entry.getKey()).length() + ((byte[]) entry.getValue()).length + 8;
            }
            return size;
        }

        void write(DataOutputStream out) throws IOException {
            out.writeLong(used);
            out.writeUTF(first);
            out.writeInt(stats.maxMethodCodeSize());
            out.writeInt(stats.maxConstPoolSize());
            out.writeInt(stats.numInnerClasses());
            out.writeInt(classes.size());
            for (Iterator i = classes.entrySet().iterator(); i.hasNext();) {
                Map.Entry entry = (Map.Entry) i.next();
                out.writeUTF((String) entry.getKey());
                out.writeInt(((byte[]) entry.getValue()).length);
                out.write((byte[]) entry.getValue());
            }
        }

        static Piece read(DataInputStream in, long most) throws IOException {
            long used = in.readLong();
            String first = in.readUTF();
            ByteCodeStats stats = new ByteCodeStats(in.readInt(), in.readInt(), in.readInt());
            Map classes = new HashMap();
            for (int left = in.readInt(); left > 0; left--) {
                String name = in.readUTF();
                int length = in.readInt();
                if (length < 0 || length > most) {
                    throw new IOException("damaged");
                }
                byte[] code = new byte[length];
                in.readFully(code);
                classes.put(name, code);
            }
            return new Piece(classes, first, stats, used);
        }
    }

    private static final class NewestFirst implements Comparator {
        public int compare(Object one, Object other) {
            return Long.compare(lastUse(other), lastUse(one));
        }

        private static long lastUse(Object entry) {
            return ((Piece) ((Map.Entry) entry).getValue()).used;
        }
    }

    private static final class Writer extends Thread {
        private final GeneratedCode code;

        Writer(GeneratedCode code) {
            this.code = code;
        }

        public void run() {
            try {
                code.write();
            } catch (Exception problem) {
                // The next process compiles again.
            }
        }
    }
}
