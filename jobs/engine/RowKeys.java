package relstate;

import java.io.Serializable;
import java.math.BigInteger;
import java.util.Arrays;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.*;

/**
 * The memcomparable encoding of a row, as one small expression of Spark.
 *
 * The layout is that of state_lib/row_encoding/layout.py, which a twin in Python and one of Spark's own expressions have too.
 */
public final class RowKeys implements Serializable {
    private static final long MIN = Long.MIN_VALUE;
    // How a row has a number.
    private static final int BYTE = 0, SHORT = 1, INT = 2, FLOAT = 3, LONG = 4, DOUBLE = 5, DECIMAL = 6;

    private final String columns;
    private final String orders;
    private transient volatile Part[] parts;

    /**
     * @param columns types of the key's columns: a struct type as JSON
     * @param orders two letters a column: a(scending) or d(escending), NULLs f(irst) or l(ast)
     */
    public RowKeys(String columns, String orders) {
        this.columns = columns;
        this.orders = orders;
    }

    public byte[] encode(InternalRow row) {
        Part[] all = parts;
        if (all == null) {
            all = partsOf((StructType) DataType.fromJson(columns), orders);
            parts = all;
        }
        Out out = new Out(16 * all.length + 16);
        for (int i = 0; i < all.length; i++) {
            all[i].write(row, i, out);
        }
        return out.toBytes();
    }

    public boolean equals(Object other) {
        return other instanceof RowKeys
            && ((RowKeys) other).columns.equals(columns) && ((RowKeys) other).orders.equals(orders);
    }

    public int hashCode() {
        return columns.hashCode() * 31 + orders.hashCode();
    }

    public String toString() {
        return orders;
    }

    /** Make the function known to a session, or to all that are opened from now on. */
    public static void register(String name, FunctionRegistry registry) {
        registry.createOrReplaceTempFunction(name, new Builder(), "built-in");
    }

    static Part[] partsOf(StructType type, String orders) {
        Part[] found = new Part[type.length()];
        for (int i = 0; i < found.length; i++) {
            boolean descending = orders != null && orders.charAt(2 * i) == 'd';
            boolean last = orders != null && orders.charAt(2 * i + 1) == 'l';
            found[i] = partOf(type.fields()[i].dataType(), descending, last);
        }
        return found;
    }

    static Part partOf(DataType type, boolean descending, boolean last) {
        Part part;
        if (type instanceof ByteType) {
            part = new Narrow(BYTE, 1);
        } else if (type instanceof ShortType) {
            part = new Narrow(SHORT, 2);
        } else if (type instanceof IntegerType || type instanceof DateType || type instanceof YearMonthIntervalType) {
            part = new Narrow(INT, 4);
        } else if (type instanceof FloatType) {
            part = new Narrow(FLOAT, 4);
        } else if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType
                || type instanceof DayTimeIntervalType) {
            part = new Wide(LONG, 0, 0);
        } else if (type instanceof DoubleType) {
            part = new Wide(DOUBLE, 0, 0);
        } else if (type instanceof DecimalType) {
            int precision = ((DecimalType) type).precision(), scale = ((DecimalType) type).scale();
            part = precision <= 18 ? (Part) new Wide(DECIMAL, precision, scale) : new Digits(precision, scale);
        } else if (type instanceof BooleanType) {
            part = new Flag();
        } else if (type instanceof StringType) {
            part = new Bytes(true);
        } else if (type instanceof BinaryType) {
            part = new Bytes(false);
        } else if (type instanceof StructType) {
            part = new Fields(partsOf((StructType) type, null));
        } else if (type instanceof ArrayType) {
            part = new Elements(partOf(((ArrayType) type).elementType(), false, false));
        } else if (type instanceof NullType) {
            part = new Flag();  // only its marker is ever written
        } else {
            throw new IllegalArgumentException("type " + type.simpleString() + " cannot be part of a storage primary key");
        }
        part.descending = descending;
        part.nullMarker = last ? 0xFF : 0x00;
        return part;
    }

    static long ordered(double value) {
        if (value == 0.0) {
            return 0;
        }
        long bits = Double.doubleToLongBits(value);
        return bits >= 0 ? bits : ~(bits & Long.MAX_VALUE);
    }

    static int ordered(float value) {
        if (value == 0.0f) {
            return 0;
        }
        int bits = Float.floatToIntBits(value);
        return bits >= 0 ? bits : ~(bits & Integer.MAX_VALUE);
    }

    /** Bytes that grow. */
    static final class Out {
        byte[] bytes;
        int size = 0;

        Out(int capacity) {
            bytes = new byte[capacity];
        }

        void room(int more) {
            if (size + more > bytes.length) {
                bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, size + more));
            }
        }

        void put(int value) {
            room(1);
            bytes[size++] = (byte) value;
        }

        void putLong(long value, int length) {
            room(length);
            for (int shift = 8 * (length - 1); shift >= 0; shift -= 8) {
                bytes[size++] = (byte) (value >>> shift);
            }
        }

        void putEscaped(byte[] value) {
            room(value.length + 2);
            for (int i = 0; i < value.length; i++) {
                put(value[i]);
                if (value[i] == 0) {
                    put(1);
                }
            }
            put(0);
            put(0);
        }

        void invert(int from) {
            for (int i = from; i < size; i++) {
                bytes[i] = (byte) ~bytes[i];
            }
        }

        byte[] toBytes() {
            return size == bytes.length ? bytes : Arrays.copyOf(bytes, size);
        }
    }

    /** One column of a key. */
    abstract static class Part {
        boolean descending;
        int nullMarker;

        final void write(SpecializedGetters row, int i, Out out) {
            if (row.isNullAt(i)) {
                out.put(nullMarker);
            } else {
                value(row, i, out);
            }
        }

        abstract void value(SpecializedGetters row, int i, Out out);
    }

    /** Integers below 64 bits, and the bits of a float. */
    static final class Narrow extends Part {
        final int kind;
        final int length;

        Narrow(int kind, int length) {
            this.kind = kind;
            this.length = length;
        }

        void value(SpecializedGetters row, int i, Out out) {
            long number = kind == BYTE ? (long) row.getByte(i)
                : kind == SHORT ? (long) row.getShort(i)
                : kind == INT ? (long) row.getInt(i)
                : (long) ordered(row.getFloat(i));
            out.put(1);
            out.putLong((descending ? ~number : number) + (1L << (8 * length - 1)), length);
        }
    }

    /** Integers of 64 bits, the bits of a double, and decimals of up to 18 digits. */
    static final class Wide extends Part {
        final int kind;
        final int precision;
        final int scale;

        Wide(int kind, int precision, int scale) {
            this.kind = kind;
            this.precision = precision;
            this.scale = scale;
        }

        void value(SpecializedGetters row, int i, Out out) {
            long number = kind == LONG ? row.getLong(i)
                : kind == DOUBLE ? ordered(row.getDouble(i))
                : row.getDecimal(i, precision, scale).toUnscaledLong();
            long value = descending ? ~number : number;
            out.put(value < 0 ? 1 : 2);
            out.putLong(value | MIN, 8);
        }
    }

    /** Decimals of more than 18 digits, a digit each 4 bits. */
    static final class Digits extends Part {
        final int precision;
        final int scale;

        Digits(int precision, int scale) {
            this.precision = precision;
            this.scale = scale;
        }

        void value(SpecializedGetters row, int i, Out out) {
            BigInteger number = row.getDecimal(i, precision, scale).toJavaBigDecimal().unscaledValue();
            boolean inverted = (number.signum() < 0) != descending;
            int length = (precision + 1) / 2;
            out.put(inverted ? 1 : 2);
            out.room(length);
            int last = out.size + length - 1;
            Arrays.fill(out.bytes, out.size, last + 1, (byte) 0);
            if (number.bitLength() < 64) {
                for (long rest = Math.abs(number.longValue()); rest != 0; rest /= 100) {
                    int two = (int) (rest % 100);
                    out.bytes[last--] = (byte) ((two / 10) << 4 | two % 10);
                }
            } else {
                String text = number.abs().toString();
                for (int at = text.length() - 1; at >= 0; at -= 2) {
                    int high = at == 0 ? 0 : text.charAt(at - 1) - '0';
                    out.bytes[last--] = (byte) (high << 4 | text.charAt(at) - '0');
                }
            }
            out.size += length;
            if (inverted) {
                for (int at = out.size - length; at < out.size; at++) {
                    out.bytes[at] = (byte) (0x99 - (out.bytes[at] & 0xFF));
                }
            }
        }
    }

    static final class Flag extends Part {
        void value(SpecializedGetters row, int i, Out out) {
            out.put(1);
            int bit = row.getBoolean(i) ? 1 : 0;
            out.put(descending ? ~bit : bit);
        }
    }

    /** Texts and binaries. */
    static final class Bytes extends Part {
        final boolean isText;

        Bytes(boolean isText) {
            this.isText = isText;
        }

        void value(SpecializedGetters row, int i, Out out) {
            out.put(1);
            int from = out.size;
            out.putEscaped(isText ? row.getUTF8String(i).getBytes() : row.getBinary(i));
            if (descending) {
                out.invert(from);
            }
        }
    }

    static final class Fields extends Part {
        final Part[] parts;

        Fields(Part[] parts) {
            this.parts = parts;
        }

        void value(SpecializedGetters row, int i, Out out) {
            out.put(1);
            int from = out.size;
            InternalRow value = row.getStruct(i, parts.length);
            for (int field = 0; field < parts.length; field++) {
                parts[field].write(value, field, out);
            }
            if (descending) {
                out.invert(from);
            }
        }
    }

    static final class Elements extends Part {
        final Part element;

        Elements(Part element) {
            this.element = element;
        }

        void value(SpecializedGetters row, int i, Out out) {
            out.put(1);
            int from = out.size;
            ArrayData values = row.getArray(i);
            int length = values.numElements();
            for (int n = 0; n < length; n++) {
                out.put(1);
                element.write(values, n, out);
            }
            out.put(0);
            if (descending) {
                out.invert(from);
            }
        }
    }

    /** Makes the expression of a call: a struct of the key's columns, its type as JSON, and the orders. */
    static final class Builder extends scala.runtime.AbstractFunction1 implements Serializable {
        public Object apply(Object arguments) {
            scala.collection.Seq given = (scala.collection.Seq) arguments;
            Expression row = (Expression) given.apply(0);
            String columns = ((Literal) given.apply(1)).value().toString();
            String orders = ((Literal) given.apply(2)).value().toString();
            DataType declared = DataType.fromJson(columns);
            if (!DataType.equalsStructurally(row.dataType(), declared, true)) {
                row = new Cast(row, declared, scala.Option.apply(null));
            }
            Expression encoder = new Literal(new RowKeys(columns, orders), new ObjectType(RowKeys.class));
            return new Invoke(encoder, "encode", BinaryType$.MODULE$, seq(row), empty(), false, false, true);
        }

        private static scala.collection.immutable.Seq empty() {
            return (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$;
        }

        private static scala.collection.immutable.Seq seq(Object only) {
            return (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$.prepended(only);
        }
    }
}
