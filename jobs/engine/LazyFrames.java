package relstate;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.analysis.UnresolvedAlias;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BitwiseAnd;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.MonotonicallyIncreasingID;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.DataFrameDropColumns;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.Metadata$;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters$;
import scala.runtime.AbstractFunction0;

/**
 * Steps of a frame that are analyzed together; state_lib/lazy_frame.py writes them.
 *
 * What only picks and renames columns of an analyzed plan, or compares whole numbers, is analyzed here. Spark's analyzer took
 * 0.8 ms for each column that a step passes on.
 */
public final class LazyFrames {
    private static final String STEP = "\u001e";
    private static final String PART = "\u001f";
    private static final String ALIAS = "\u001d";
    private static final Set COMPARED = new HashSet(Arrays.asList(new Object[] {
        And.class, Or.class, Not.class, EqualTo.class, EqualNullSafe.class,
        LessThan.class, LessThanOrEqual.class, GreaterThan.class, GreaterThanOrEqual.class}));

    /** Characters of texts that are analyzed in one go: each round of the analyzer looks at all that waits for the one below. */
    private static final int TOGETHER = 300;

    private final SparkSession session;
    private final SQLConf conf;
    private final ParserInterface parser;
    private LogicalPlan plan;
    private Map columns;
    private int waiting = 0;

    private LazyFrames(SparkSession session, LogicalPlan plan) {
        this.session = session;
        this.conf = session.sessionState().conf();
        this.parser = session.sessionState().sqlParser();
        this.plan = plan;
    }

    /** The frame after some steps. */
    public static Dataset after(final Dataset frame, final String steps) throws Exception {
        final SparkSession session = (SparkSession) frame.sparkSession();
        final LazyFrames made = new LazyFrames(session, frame.logicalPlan());
        // Texts are parsed as the session says, whichever one is active in this thread.
        Object error = SQLConf$.MODULE$.withExistingConf(
            made.conf,
            new AbstractFunction0() {
                public Object apply() {
                    try {
                        for (String step : split(steps, STEP)) {
                            made.add(step);
                        }
                        return null;
                    } catch (Exception error) {
                        return error;
                    }
                }
            });
        if (error != null) {
            throw (Exception) error;
        }
        return Dataset$.MODULE$.ofRows(session, made.plan);
    }

    private void add(String step) throws Exception {
        String text = step.substring(1);
        switch (step.charAt(0)) {
            case 's':
                select(split(text, PART));
                return;
            case 'd':
                drop(split(text, PART));
                return;
            case 'w':
                Expression condition = parser.parseExpression(text);
                Expression compared = plan.analyzed() ? compared(condition) : null;
                become(new Filter(compared == null ? condition : compared, plan), compared != null && compared.resolved());
                return;
            case 'l':
                String[] numbers = split(text, PART);
                Expression place = new BitwiseAnd(new MonotonicallyIncreasingID(), number(Long.parseLong(numbers[0])));
                become(new Filter(new LessThanOrEqual(place, number(Long.parseLong(numbers[1]))), plan), plan.analyzed());
                return;
            default:
                throw new IllegalArgumentException(step);
        }
    }

    /** Columns: `n` and a name, `a`, a name and its new one, `c`, these and a type, or `e` and an expression. */
    private void select(String[] texts) throws Exception {
        if (waiting > TOGETHER) {
            become(Dataset$.MODULE$.ofRows(session, plan).logicalPlan(), true);
        }
        List picked = new ArrayList(texts.length);
        boolean analyzed = plan.analyzed();
        for (String each : texts) {
            String text = each.substring(1);
            switch (each.charAt(0)) {
                case 'n':
                    Attribute found = column(text);
                    analyzed &= found != null;
                    picked.add(found == null ? unresolved(text) : found);
                    break;
                case 'a':
                    String[] names = split(text, ALIAS);
                    Attribute renamed = column(names[0]);
                    analyzed &= renamed != null;
                    if (renamed != null && renamed.name().equals(names[1])) {
                        picked.add(renamed);
                    } else {
                        picked.add(alias(renamed == null ? (Expression) unresolved(names[0]) : renamed, names[1]));
                    }
                    break;
                case 'c':
                    String[] cast = split(text, ALIAS);
                    Attribute value = column(cast[0]);
                    if (value != null && isOfType(value, cast[2])) {
                        picked.add(alias(value, cast[1]));
                        break;
                    }
                    analyzed &= pick(picked, "CAST(" + quoted(cast[0]) + " AS " + cast[2] + ") AS " + quoted(cast[1]));
                    break;
                default:
                    if (text.equals("*") && plan.analyzed()) {
                        picked.addAll(CollectionConverters$.MODULE$.asJava(plan.output()));
                        break;
                    }
                    analyzed &= pick(picked, text);
            }
        }
        become(new Project(asSeq(picked), plan), analyzed);
    }

    /** Add a parsed text; whether there is nothing to analyze in it. */
    private boolean pick(List picked, String text) throws Exception {
        Expression parsed = parser.parseExpression(text);
        picked.add(parsed instanceof NamedExpression ? parsed : new UnresolvedAlias(parsed, Option.empty()));
        if (parsed instanceof Alias && isConstant(((Alias) parsed).child()) && parsed.resolved()) {
            return true;
        }
        waiting += text.length();
        return false;
    }

    /** Whether a cast to a type leaves a column as it is. */
    private static boolean isOfType(Attribute value, String type) {
        // A cast drops metadata. The type of a text that says TIMESTAMP depends on the session.
        return value.dataType().catalogString().equals(type) && !type.equals("timestamp")
            && value.metadata().equals(Metadata$.MODULE$.empty());
    }

    /** Whether an expression is a whole number, or a NULL of some type. */
    private static boolean isConstant(Expression parsed) {
        if (parsed instanceof Cast) {
            Expression child = ((Cast) parsed).child();
            return child instanceof Literal && ((Literal) child).value() == null;
        }
        Object value = parsed instanceof Literal ? ((Literal) parsed).value() : null;
        return value instanceof Integer || value instanceof Long || value instanceof Boolean;
    }

    private void drop(String[] names) {
        if (!plan.analyzed()) {
            List dropped = new ArrayList(names.length);
            for (String name : names) {
                dropped.add(unresolved(name));
            }
            become(new DataFrameDropColumns(asSeq(dropped), plan), false);
            return;
        }
        List kept = new ArrayList();
        for (Object each : CollectionConverters$.MODULE$.asJava(plan.output())) {
            boolean isKept = true;
            for (String name : names) {
                isKept &= !same(((Attribute) each).name(), name);
            }
            if (isKept) {
                kept.add(each);
            }
        }
        if (kept.size() < plan.output().size()) {
            become(new Project(asSeq(kept), plan), true);
        }
    }

    private void become(LogicalPlan next, boolean analyzed) {
        if (analyzed) {
            next.setAnalyzed();
            waiting = 0;
        }
        plan = next;
        columns = null;
    }

    /** The one column of an analyzed plan that a name means, or null. */
    private Attribute column(String name) {
        if (!plan.analyzed()) {
            return null;
        }
        if (columns == null) {
            columns = new HashMap();
            for (Object each : CollectionConverters$.MODULE$.asJava(plan.output())) {
                String key = ((Attribute) each).name().toLowerCase(Locale.ROOT);
                List alike = (List) columns.get(key);
                if (alike == null) {
                    alike = new ArrayList(1);
                    columns.put(key, alike);
                }
                alike.add(each);
            }
        }
        List alike = (List) columns.get(name.toLowerCase(Locale.ROOT));
        Attribute found = null;
        for (int n = 0; alike != null && n < alike.size(); n++) {
            Attribute each = (Attribute) alike.get(n);
            if (same(each.name(), name)) {
                if (found != null) {
                    return null;
                }
                found = each.withName(name);
            }
        }
        return found;
    }

    /** A comparison of whole numbers and truth values, analyzed; null for all else. */
    private Expression compared(Expression parsed) {
        if (parsed instanceof UnresolvedAttribute) {
            Seq parts = ((UnresolvedAttribute) parsed).nameParts();
            Attribute found = parts.size() == 1 ? column((String) parts.head()) : null;
            return found != null && isCompared(found.dataType()) ? found : null;
        }
        if (parsed instanceof Literal) {
            Object value = ((Literal) parsed).value();
            // A smaller number would be cast to that of the column.
            return value instanceof Integer ? number(((Integer) value).longValue())
                : value instanceof Long || value instanceof Boolean ? parsed : null;
        }
        if (!COMPARED.contains(parsed.getClass())) {
            return null;
        }
        List children = new ArrayList(2);
        for (Object child : CollectionConverters$.MODULE$.asJava(parsed.children())) {
            Expression made = compared((Expression) child);
            if (made == null) {
                return null;
            }
            children.add(made);
        }
        Expression made = (Expression) parsed.withNewChildren(asSeq(children));
        return made.resolved() ? made : null;
    }

    private static boolean isCompared(DataType type) {
        return type instanceof LongType || type instanceof BooleanType;
    }

    private boolean same(String one, String other) {
        return conf.caseSensitiveAnalysis() ? one.equals(other) : one.equalsIgnoreCase(other);
    }

    private static Literal number(long value) {
        return Literal$.MODULE$.apply(Long.valueOf(value));
    }

    private static String quoted(String name) {
        return "`" + name.replace("`", "``") + "`";
    }

    private static UnresolvedAttribute unresolved(String name) {
        List parts = new ArrayList(1);
        parts.add(name);
        return UnresolvedAttribute$.MODULE$.apply(asSeq(parts));
    }

    private static Alias alias(Expression value, String name) {
        return new Alias(
            value, name, NamedExpression$.MODULE$.newExprId(), (Seq) Nil$.MODULE$, Option.empty(), (Seq) Nil$.MODULE$);
    }

    private static Seq asSeq(List items) {
        return CollectionConverters$.MODULE$.asScala(items).toSeq();
    }

    private static String[] split(String text, String separator) {
        List parts = new ArrayList();
        int from = 0;
        for (int at = text.indexOf(separator); at >= 0; at = text.indexOf(separator, from)) {
            parts.add(text.substring(from, at));
            from = at + separator.length();
        }
        parts.add(text.substring(from));
        return (String[]) parts.toArray(new String[0]);
    }
}
