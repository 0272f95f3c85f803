// Keeps views up to date in PostgreSQL (PGlite) with pg_ivm. Reads a job (JSON) from the file that is its argument, and
// prints one line of JSON for each view: {query, backfill, epochs: [seconds], rows} or {query, refused}.
//
// job: {setup: [sql], base: {table: csv}, epochs: [{table: csv}], views: {query: sql}}
import { readFile } from "node:fs/promises";
import { PGlite } from "@electric-sql/pglite";
import { pg_ivm } from "@electric-sql/pglite-pg_ivm";

const job = JSON.parse(await readFile(process.argv[2], "utf8"));
const extensions = { pg_ivm };
const seconds = async (work) => {
  const started = performance.now();
  await work();
  return (performance.now() - started) / 1000;
};
const blobs = async (files) =>
  Promise.all(Object.entries(files).map(async ([table, file]) => [table, new Blob([await readFile(file)])]));
const copy = async (tables, on) => {
  for (const [table, blob] of tables) {
    await on.query(`COPY ${table} FROM '/dev/blob' WITH (FORMAT csv)`, [], { blob });
  }
};

const base = await loaded();
const epochs = await Promise.all(job.epochs.map(blobs));
for (const [query, text] of Object.entries(job.views)) {
  // Every view begins with the same files: what another has left behind makes later ones slower.
  const db = await PGlite.create({ extensions, loadDataDir: base });
  console.log(JSON.stringify({ query, ...(await measured(db, text)) }));
  await db.close();
}

async function loaded() {
  const db = await PGlite.create({ extensions });
  await db.exec("CREATE EXTENSION pg_ivm");
  for (const sql of job.setup) await db.exec(sql);
  await copy(await blobs(job.base), db);
  await db.exec("VACUUM ANALYZE");
  const files = await db.dumpDataDir("none");
  await db.close();
  return files;
}

async function measured(db, text) {
  let backfill;
  try {
    backfill = await seconds(() => db.query("SELECT pgivm.create_immv('kept', $1)", [text]));
  } catch (problem) {
    return { refused: problem.message };
  }
  const walls = [];
  for (const tables of epochs) {
    walls.push(await seconds(() => db.transaction((on) => copy(tables, on))));
  }
  const columns = (await db.query(`SELECT * FROM (${text}) q LIMIT 0`)).fields.map((f) => `"${f.name}"`).join(", ");
  const differing = await db.query(
    `SELECT count(*)::int AS n FROM ((SELECT ${columns} FROM kept EXCEPT ALL (${text}))
     UNION ALL ((${text}) EXCEPT ALL SELECT ${columns} FROM kept)) d`,
  );
  const rows = (await db.query("SELECT count(*)::int AS n FROM kept")).rows[0].n;
  return { backfill, epochs: walls, rows, differing: differing.rows[0].n };
}
