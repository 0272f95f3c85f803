"""Raw files of a retail brokerage: a historical load, and batches of changes after it.

The business is the one that the public TPC-DI specification describes: customers with accounts trade securities of companies
through brokers. Every value is a function of a row's number, computed by Spark, so that the same scale gives the same files.

At SF 1 the historical load has 130,000 trades, 540,000 daily market rows, 50,000 cash transactions, 3,000 customers and 5,000
accounts. A later batch has two more days: 0.3 % more rows, and some tens of updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

#: Raised when other rows are generated, so that kept ones are not taken for them.
VERSION: Final = 2
#: The first day of the historical load, and how many days it has.
_FIRST_SECOND: Final = 1_388_534_400  # 2014-01-01
_DAYS: Final = 771
_DAYS_OF_A_BATCH: Final = 2
_SECONDS: Final = 86_400
#: The share of rows that a batch adds.
_ADDED: Final = 0.003


@dataclass(frozen=True)
class Load:
    """Rows of one table in one batch.

    Parameters
    ----------
    kind : ``merge`` replaces rows by the table's key; a ``snapshot`` replaces all rows.
    """

    table: str
    kind: Literal["append", "merge", "snapshot"]
    query: str


@dataclass(frozen=True)
class Scale:
    """Numbers of rows at a scale factor."""

    sf: float

    def rows(self, at_one: float, least: int) -> int:
        """A number of rows that grows with the scale."""
        return max(least, round(at_one * self.sf))

    @property
    def customers(self) -> int:
        """Customers of the historical load."""
        return self.rows(3_000, 60)

    @property
    def symbols(self) -> int:
        """Securities; each company issues two."""
        return 2 * self.rows(350, 10)

    @property
    def employees(self) -> int:
        """Employees; every third one is a broker."""
        return 3 * self.rows(333, 20)

    @property
    def trades(self) -> int:
        """Trades of the historical load."""
        return self.rows(130_000, 500)

    def added(self, table_rows: int, least: int) -> int:
        """Rows that a batch adds to a table."""
        return max(least, round(table_rows * _ADDED))


@dataclass(frozen=True)
class Batch:
    """One batch; the first is the historical load."""

    number: int

    @property
    def first_day(self) -> int:
        """Its first day, counted from the start of the history."""
        return 0 if self.number == 1 else _DAYS + _DAYS_OF_A_BATCH * (self.number - 2)

    @property
    def days(self) -> int:
        """Number of its days."""
        return _DAYS if self.number == 1 else _DAYS_OF_A_BATCH

    def numbers(self, historical: int, added: int) -> tuple[int, int]:
        """First and end of the row numbers that it adds."""
        if self.number == 1:
            return 0, historical
        first = historical + added * (self.number - 2)
        return first, first + added


def loads(sf: float, number: int) -> Iterator[Load]:
    """Rows that a batch brings, by table."""
    scale, batch = Scale(sf), Batch(number)
    if number == 1:
        yield from _reference(scale)
        yield Load("raw_customer_action", "append", _customer_actions(scale))
    else:
        yield Load("raw_customer", "append", _changed_customers(scale, batch))
        yield Load("raw_account", "append", _changed_accounts(scale, batch))
    yield Load("raw_batch", "append", f"SELECT {number}, {_day(str(batch.first_day + batch.days - 1))}")
    yield Load("raw_finwire", "append", _finwire(scale, batch))
    new, closed = _trades(scale, batch)
    both = f"{new} UNION ALL {closed}" if closed else new
    yield Load("raw_trade", "append" if number == 1 else "merge", f"SELECT {_TRADE_COLUMNS} FROM ({both})")
    yield Load("raw_trade_history", "append", _trade_history(new, closed))
    yield Load("raw_holding_history", "append", f"SELECT {_HOLDING_COLUMNS} FROM ({both}) WHERE is_completed")
    yield Load("raw_daily_market", "append", _daily_market(scale, batch))
    yield Load("raw_cash_transaction", "append", _cash_transactions(scale, batch))
    yield Load("raw_watch_history", "append", _watches(scale, batch))
    yield Load("raw_prospect", "append" if number == 1 else "snapshot", _prospects(scale, batch))


def _hash(of: str, salt: int, values: int) -> str:
    """A number below ``values`` that looks like chance."""
    return f"CAST(pmod(xxhash64({of}, {salt}), {values}) AS INT)"


def _one_of(of: str, salt: int, values: str) -> str:
    """One of some words."""
    words = values.split()
    return f"element_at(array({', '.join(repr(w) for w in words)}), 1 + {_hash(of, salt, len(words))})"


def _time(second: str) -> str:
    """Text of a time, by its second since the start of the history."""
    return f"date_format(timestamp_seconds({_FIRST_SECOND} + {second}), 'yyyy-MM-dd HH:mm:ss')"


def _day(day: str) -> str:
    return f"CAST(date_add(DATE'2014-01-01', CAST({day} AS INT)) AS STRING)"


def _compact(second: str, pattern: str) -> str:
    return f"date_format(timestamp_seconds({_FIRST_SECOND} + {second}), '{pattern}')"


def _money(of: str, salt: int, most: int) -> str:
    return f"CAST(CAST({_hash(of, salt, most * 100)} / 100 AS DECIMAL(15,2)) AS STRING)"


def _symbol(number: str) -> str:
    return f"format_string('SYM%05d', {number})"


_FIRST_NAMES: Final = (
    "Ada Ben Cleo Dana Eli Fay Gus Hana Ivo Jun Kai Lea Max Nia Oto Pia Quin Rio Sol Tess Uma Vic Wes Yara Zoe"
)
_LAST_NAMES: Final = (
    "Adler Brook Cole Drake Evers Frost Gray Hale Ives Jonas Kerr Lane Moss North Oakes Price Quick Reed Stone Tate Usher "
    "Vance Wells Young Zane"
)
_CITIES: Final = "Aberdeen Boston Calgary Denver Eugene Fresno Geneva Halifax Irvine Juneau Kansas Lincoln Madison Newark"
_STATES: Final = "AB BC CA CO IL MA NE NJ NY ON OR QC TX WA"
_STREETS: Final = "Oak Pine Maple Cedar Elm Lake Hill Park River View"


def _reference(scale: Scale) -> Iterator[Load]:
    statuses = (
        "('ACTV','Active'),('CMPT','Completed'),('CNCL','Canceled'),('PNDG','Pending'),('SBMT','Submitted'),('INAC','Inactive')"
    )
    types = (
        "('TMB','Market Buy','0','1'),('TMS','Market Sell','1','1'),('TLB','Limit Buy','0','0'),('TLS','Limit Sell','1','0'),"
        "('TSL','Stop Loss','1','0')"
    )
    yield Load("raw_status_type", "append", f"SELECT * FROM VALUES {statuses}")
    yield Load("raw_trade_type", "append", f"SELECT * FROM VALUES {types}")
    rate = "CAST(CAST((id * 7 % 41) / 100 AS DECIMAL(6,5)) AS STRING)"
    yield Load("raw_tax_rate", "append", f"SELECT concat('TX', id), concat('Tax of zone ', id), {rate} FROM range(40)")
    name = f"concat('Industry ', id, ' ', {_one_of('id', 1, 'Goods Services Tools Foods')})"
    yield Load("raw_industry", "append", f"SELECT format_string('%02d', id), {name}, concat('S', id % 8) FROM range(30)")
    days = f"SELECT {_day('id')}, IF(id % 97 = 0, 'true', 'false') FROM range({_DAYS + 120})"
    yield Load("raw_date", "append", days)
    job = "IF(id % 3 = 0, '314', '205')"
    line = (
        f"concat_ws('|', id, id DIV 12, {_one_of('id', 1, _FIRST_NAMES)}, {_one_of('id', 2, _LAST_NAMES)}, "
        f"char(65 + id % 26), {job}, concat('Branch ', id % 17), concat('OFFICE', id % 200), "
        f"concat('555-', {_hash('id', 5, 9_000)} + 1000))"
    )
    yield Load("raw_employee", "append", f"SELECT {line} FROM range({scale.employees})")


# --- customers and accounts -------------------------------------------------------------------------------------------------


def _names(customer: str) -> dict[str, str]:
    return {
        "c_l_name": f"concat({_one_of(customer, 11, _LAST_NAMES)}, {customer} % 40)",
        "c_f_name": _one_of(customer, 12, _FIRST_NAMES),
        "c_m_name": f"IF({_hash(customer, 13, 3)} = 0, NULL, char(65 + {_hash(customer, 14, 26)}))",
    }


def _address(customer: str, version: str) -> dict[str, str]:
    """Columns that an update changes."""
    of = f"{customer} * 100 + {version}"
    return {
        "c_adline1": f"concat({_hash(of, 15, 900)} + 1, ' ', {_one_of(of, 16, _STREETS)} , ' Street')",
        "c_adline2": f"IF({_hash(of, 17, 4)} = 0, concat('Apt ', {_hash(of, 18, 60)}), NULL)",
        "c_zipcode": f"format_string('%05d', {_hash(of, 19, 90_000)})",
        "c_city": _one_of(of, 20, _CITIES),
        "c_state_prov": _one_of(of, 21, _STATES),
        "c_ctry": f"IF({_hash(of, 22, 8)} = 0, 'Canada', 'United States')",
        "c_prim_email": f"concat('c', {customer}, '.', {version}, '@mail.example')",
        "c_area_1": f"format_string('%03d', {_hash(of, 23, 900)} + 100)",
        "c_local_1": f"format_string('%07d', {_hash(of, 24, 9_000_000)})",
        "c_credit_limit": f"CAST(CAST({_hash(of, 25, 90_000_000)} / 7 AS DECIMAL(28,10)) AS STRING)",
        "c_risk_score": f"CAST({_hash(of, 26, 1_000_000)} / 1e6D AS STRING)",
    }


def _person(customer: str) -> dict[str, str]:
    """Columns that stay."""
    return {
        **_names(customer),
        "c_tax_id": f"concat_ws('-', {_hash(customer, 31, 999)}, {_hash(customer, 32, 99)}, {customer} % 10000)",
        "c_gndr": _one_of(customer, 33, "F M f m u"),
        "c_tier": f"CAST(1 + {_hash(customer, 34, 3)} AS STRING)",
        "c_dob": f"CAST(date_add(DATE'1935-01-01', {_hash(customer, 35, 24_000)}) AS STRING)",
        "c_alt_email": f"IF({_hash(customer, 36, 2)} = 0, concat('alt', {customer}, '@post.example'), NULL)",
        "c_ext_1": f"IF({_hash(customer, 37, 3)} = 0, CAST({_hash(customer, 38, 999)} AS STRING), NULL)",
        "c_area_2": f"format_string('%03d', {_hash(customer, 39, 900)} + 100)",
        "c_local_2": f"format_string('%07d', {_hash(customer, 40, 9_000_000)})",
        "c_area_3": "CAST(NULL AS STRING)",
        "c_local_3": f"IF({_hash(customer, 41, 2)} = 0, format_string('%07d', {_hash(customer, 42, 9_000_000)}), NULL)",
        "c_lcl_tx_id": f"concat('TX', {_hash(customer, 43, 20)})",
        "c_nat_tx_id": f"concat('TX', 20 + {_hash(customer, 44, 20)})",
    }


_CUSTOMER_COLUMNS: Final = [
    "c_tax_id",
    "c_gndr",
    "c_tier",
    "c_dob",
    "c_l_name",
    "c_f_name",
    "c_m_name",
    "c_adline1",
    "c_adline2",
    "c_zipcode",
    "c_city",
    "c_state_prov",
    "c_ctry",
    "c_prim_email",
    "c_alt_email",
    "c_area_1",
    "c_local_1",
    "c_ext_1",
    "c_area_2",
    "c_local_2",
    "c_area_3",
    "c_local_3",
    "c_lcl_tx_id",
    "c_nat_tx_id",
    "c_credit_limit",
    "c_risk_score",
]
#: The order in which a later batch has them.
_CDC_COLUMNS: Final = [
    "c_tax_id",
    "c_st_id",
    "c_l_name",
    "c_f_name",
    "c_m_name",
    "c_gndr",
    "c_tier",
    "c_dob",
    "c_adline1",
    "c_adline2",
    "c_zipcode",
    "c_city",
    "c_state_prov",
    "c_ctry",
    "c_area_1",
    "c_local_1",
    "c_ext_1",
    "c_area_2",
    "c_local_2",
    "c_area_3",
    "c_local_3",
    "c_prim_email",
    "c_alt_email",
    "c_lcl_tx_id",
    "c_nat_tx_id",
    "c_credit_limit",
    "c_risk_score",
]


def _broker(of: str, salt: int, scale: Scale) -> str:
    return f"CAST(3 * {_hash(of, salt, scale.employees // 3)} AS STRING)"


def _account(number: str, scale: Scale) -> str:
    """Columns of an account: tax status, broker, name."""
    name = f"concat('Account ', {number} % 100, ' of ', {number} DIV 10)"
    return f"CAST({_hash(number, 51, 3)} AS STRING), {_broker(number, 52, scale)}, {name}"


def _customer_actions(scale: Scale) -> str:
    count = scale.customers

    def action(kind: str, second: str, customer: dict[str, str], account: str, source: str) -> str:
        columns = ", ".join(f"CAST({customer.get(c, 'NULL')} AS STRING)" for c in _CUSTOMER_COLUMNS)
        return f"SELECT '{kind}', {_time(second)}, CAST(c AS STRING), {columns}, {account} FROM ({source})"

    customers = f"SELECT id AS c, id * 10 AS a FROM range({count})"
    second_accounts = f"SELECT id AS c, id * 10 + 1 AS a FROM range({count}) WHERE id % 3 < 2"
    all_accounts = f"({customers} UNION ALL {second_accounts})"
    nothing = "CAST(NULL AS STRING), CAST(NULL AS STRING), CAST(NULL AS STRING), CAST(NULL AS STRING)"
    before = f"(-1 - {_hash('c', 61, 700)}) * {_SECONDS} + {_hash('c', 62, 40_000)}"
    parts = [
        action("NEW", before, {**_person("c"), **_address("c", "0")}, f"CAST(a AS STRING), {_account('a', scale)}", customers),
        action("ADDACCT", f"({before}) + 40000", {}, f"CAST(a AS STRING), {_account('a', scale)}", second_accounts),
        action("UPDCUST", _within("c", 63), _address("c", "1"), nothing, f"{customers} WHERE id % 2 = 0"),
        action("UPDCUST", _within("c", 64), _address("c", "2"), nothing, f"{customers} WHERE id % 5 = 0"),
        action(
            "UPDACCT",
            _within("a", 65),
            {},
            f"CAST(a AS STRING), CAST(NULL AS STRING), {_broker('a', 66, scale)}, CAST(NULL AS STRING)",
            f"SELECT * FROM {all_accounts} WHERE a % 4 < 1",
        ),
        action(
            "CLOSEACCT",
            f"{600 * _SECONDS} + {_hash('a', 67, 170 * _SECONDS)}",
            {},
            "CAST(a AS STRING), CAST(NULL AS STRING), CAST(NULL AS STRING), CAST(NULL AS STRING)",
            f"SELECT * FROM {all_accounts} WHERE {_hash('a', 68, 40)} = 0",
        ),
        action(
            "INACT",
            f"{650 * _SECONDS} + {_hash('c', 69, 120 * _SECONDS)}",
            {},
            nothing,
            f"{customers} WHERE {_hash('id', 70, 60)} = 0",
        ),
    ]
    return " UNION ALL ".join(parts)


def _within(of: str, salt: int) -> str:
    """A second of the history."""
    return f"{_hash(of, salt, _DAYS * _SECONDS)}"


def _changed_customers(scale: Scale, batch: Batch) -> str:
    first, end = _new_customers(scale, batch)
    version = f"{batch.number + 1}"
    columns = {**_person("c"), **_address("c", version), "c_st_id": f"IF({_hash('c', 71, 12)} = 0, 'INAC', 'ACTV')"}
    changed = _changed("id", scale.customers, scale.rows(30, 12), batch)
    rows = (
        f"SELECT 'I' AS flag, id AS c FROM range({first}, {end}) UNION ALL "
        f"SELECT 'U' AS flag, id AS c FROM range({scale.customers}) WHERE {changed}"
    )
    texts = ", ".join(f"CAST({columns[c]} AS STRING)" for c in _CDC_COLUMNS)
    return f"SELECT flag, {batch.number * 1_000_000} + c, {batch.number}, CAST(c AS STRING), {texts} FROM ({rows})"


def _changed_accounts(scale: Scale, batch: Batch) -> str:
    first, end = _new_customers(scale, batch)
    changed = _changed("id + 7", scale.customers, scale.rows(20, 10), batch)
    rows = (
        f"SELECT 'I' AS flag, id * 10 AS a FROM range({first}, {end}) UNION ALL "
        f"SELECT 'U' AS flag, id * 10 AS a FROM range({scale.customers}) WHERE {changed}"
    )
    broker = _broker(f"a * 100 + {batch.number}", 72, scale)
    name = "concat('Account ', a % 100, ' of ', a DIV 10)"
    tail = f"CAST({_hash('a', 51, 3)} AS STRING), IF({_hash('a', 73, 9)} = 0 AND flag = 'U', 'INAC', 'ACTV')"
    return (
        f"SELECT flag, {batch.number * 1_000_000} + a, {batch.number}, CAST(a AS STRING), {broker}, CAST(a DIV 10 AS STRING), "
        f"{name}, {tail} FROM ({rows})"
    )


def _new_customers(scale: Scale, batch: Batch) -> tuple[int, int]:
    return batch.numbers(scale.customers, scale.added(scale.customers, 2))


def _changed(of: str, rows: int, changed: int, batch: Batch) -> str:
    """A condition that about this many rows meet, others in each batch."""
    return f"{_hash(of, 80 + batch.number, max(1, rows // changed))} = 0"


# --- companies, securities, financial reports --------------------------------------------------------------------------------


def _finwire(scale: Scale, batch: Batch) -> str:
    companies = scale.symbols // 2
    if batch.number == 1:
        return " UNION ALL ".join(
            [
                _company(f"SELECT id AS n, 0 AS v, -{_SECONDS} * 800 AS s FROM range({companies})", 1),
                _company(f"SELECT id AS n, 1 AS v, {_within('id', 101)} AS s FROM range({companies}) WHERE id % 3 = 0", 1),
                _security(f"SELECT id AS n, 0 AS v, -{_SECONDS} * 700 AS s FROM range({scale.symbols})", 1),
                _security(f"SELECT id AS n, 1 AS v, {_within('id', 102)} AS s FROM range({scale.symbols}) WHERE id % 5 = 0", 1),
                _report(f"SELECT id DIV 12 AS n, id % 12 AS v FROM range({companies * 12})", 1),
            ]
        )
    second = f"{batch.first_day * _SECONDS} + {_hash('id', 103, _SECONDS)}"
    changed = _changed("id", companies, scale.rows(4, 2), batch)
    return " UNION ALL ".join(
        [
            _company(
                f"SELECT id AS n, {batch.number} AS v, {second} AS s FROM range({companies}) WHERE {changed}", batch.number
            ),
            _security(
                f"SELECT id * 2 AS n, {batch.number} AS v, {second} AS s FROM range({companies}) WHERE {changed}", batch.number
            ),
            _report(f"SELECT id AS n, {10 + batch.number} AS v FROM range({companies}) WHERE {changed}", batch.number),
        ]
    )


def _fixed(*parts: tuple[str, int]) -> str:
    """A line of parts with fixed widths."""
    padded = [f"rpad(CAST({text} AS STRING), {width}, ' ')" for text, width in parts]
    return f"concat({', '.join(padded)})"


def _company(rows: str, batch: int) -> str:
    line = _fixed(
        (_compact("s", "yyyyMMdd-HHmmss"), 15),
        ("'CMP'", 3),
        ("concat('Company ', n)", 40),
        ("format_string('%010d', n)", 10),
        (f"IF({_hash('n * 10 + v', 111, 15)} = 0, 'INAC', 'ACTV')", 4),
        (f"format_string('%02d', {_hash('n', 112, 30)})", 2),
        (_one_of("n * 10 + v", 113, "AAA AA A BBB BB B CCC"), 4),
        (f"format_string('%08d', 19000101 + {_hash('n', 114, 90)} * 10000)", 8),
        (f"concat({_hash('n', 115, 900)}, ' Main Street')", 40),
        (f"format_string('%05d', {_hash('n', 116, 90_000)})", 10),
        (_one_of("n", 117, _CITIES), 20),
        (_one_of("n", 118, _STATES), 10),
        ("'United States'", 16),
        (f"concat({_one_of('n * 10 + v', 119, _FIRST_NAMES)}, ' ', {_one_of('n * 10 + v', 120, _LAST_NAMES)})", 30),
        ("concat('Makes what company ', n, ' sells, version ', v)", 60),
    )
    return f"SELECT {line}, {batch} FROM ({rows})"


def _security(rows: str, batch: int) -> str:
    line = _fixed(
        (_compact("s", "yyyyMMdd-HHmmss"), 15),
        ("'SEC'", 3),
        (_symbol("n"), 15),
        (_one_of("n", 131, "COMMON PREF_A PREF_B"), 6),
        ("'ACTV'", 4),
        ("concat('Security ', n)", 40),
        (_one_of("n", 132, "NYSE NASDAQ AMEX PCX"), 6),
        (f"{_hash('n * 10 + v', 133, 90_000_000)} + 1000000", 13),
        (_compact(f"-{_SECONDS} * (1000 + n)", "yyyyMMdd"), 8),
        (_compact(f"-{_SECONDS} * (900 + n)", "yyyyMMdd"), 8),
        (f"CAST({_hash('n * 10 + v', 134, 500)} / 100 AS DECIMAL(10,2))", 12),
        ("IF(n % 4 = 0, concat('Company ', n DIV 2), format_string('%010d', n DIV 2))", 40),
    )
    return f"SELECT {line}, {batch} FROM ({rows})"


def _report(rows: str, batch: int) -> str:
    of, day = "n * 100 + v", "DATE'2013-01-01'"
    line = _fixed(
        (f"concat(date_format(add_months({day}, v * 3 + 3), 'yyyyMMdd'), '-120000')", 15),
        ("'FIN'", 3),
        (f"year(add_months({day}, v * 3))", 4),
        (f"quarter(add_months({day}, v * 3))", 1),
        (f"date_format(add_months({day}, v * 3), 'yyyyMMdd')", 8),
        (f"CAST({_hash(of, 141, 900_000_000)} / 1 + 1000000 AS DECIMAL(15,2))", 17),
        (f"CAST({_hash(of, 142, 90_000_000)} - 20000000 AS DECIMAL(15,2))", 17),
        (f"CAST(({_hash(of, 143, 1_000)} - 200) / 100 AS DECIMAL(10,2))", 12),
        (f"CAST(({_hash(of, 144, 1_000)} - 250) / 100 AS DECIMAL(10,2))", 12),
        (f"CAST({_hash(of, 145, 90)} / 100 AS DECIMAL(10,2))", 12),
        (f"CAST({_hash(of, 146, 50_000_000)} AS DECIMAL(15,2))", 17),
        (f"CAST({_hash(of, 147, 900_000_000)} AS DECIMAL(15,2))", 17),
        (f"CAST({_hash(of, 148, 700_000_000)} AS DECIMAL(15,2))", 17),
        (f"{_hash(of, 149, 90_000_000)} + 1000000", 13),
        ("IF(n % 3 = 0, concat('Company ', n), format_string('%010d', n))", 40),
    )
    return f"SELECT {line}, {batch} FROM ({rows})"


# --- trades -----------------------------------------------------------------------------------------------------------------

_TRADE_COLUMNS: Final = (
    "t_id, t_dts, t_st_id, t_tt_id, t_is_cash, t_s_symb, t_qty, t_bid_price, t_ca_id, t_exec_name, t_trade_price, t_chrg, "
    "t_comm, t_tax"
)
_HOLDING_COLUMNS: Final = (
    f"IF(is_sell, greatest(0, t_id - {_hash('t_id', 171, 2_000)}), t_id), t_id, "
    f"CAST(IF(is_sell, CAST(t_qty AS INT) + {_hash('t_id', 172, 300)}, 0) AS STRING), "
    f"CAST(IF(is_sell, {_hash('t_id', 172, 300)}, CAST(t_qty AS INT)) AS STRING)"
)


def _trades(scale: Scale, batch: Batch) -> tuple[str, str]:
    """New trades of a batch, and older ones that are closed in it."""
    first, end = batch.numbers(scale.trades, scale.added(scale.trades, 20))
    starts, seconds = batch.first_day * _SECONDS, batch.days * _SECONDS
    second = f"{starts} + CAST((id - {first}) * {seconds} DIV {end - first} AS BIGINT)"
    newest = int(scale.trades * 0.98)
    is_left_open = f"id >= {newest} AND {_hash('id', 151, 4)} = 0" if batch.number == 1 else f"{_hash('id', 151, 5)} = 0"
    closed = f"{second} + 60 + {_hash('id', 152, 7_200)}"
    new = _trade(f"SELECT id, {second} AS s, {closed} AS e, {is_left_open} AS is_open FROM range({first}, {end})", scale)
    if batch.number == 1:
        return new, ""
    history = f"CAST(id * {_DAYS * _SECONDS} DIV {scale.trades} AS BIGINT)"
    closes = f"{_hash('id', 151, 4)} = 0 AND {_hash('id', 153, 3)} = {batch.number - 2}"
    later = f"{starts} + {_hash('id', 154, _SECONDS)}"
    older = f"range({newest}, {scale.trades}) WHERE {closes}"
    return new, _trade(f"SELECT id, {history} AS s, {later} AS e, false AS is_open FROM {older}", scale)


def _trade(rows: str, scale: Scale) -> str:
    """Columns of trades that begin at second ``s`` and are closed at ``e``."""
    facts = {
        "c": _hash("id", 161, scale.customers),
        "t_tt_id": _one_of("id", 162, "TMB TMS TLB TLS TSL"),
        "symbol": _hash("id", 163, scale.symbols),
        "qty": f"1 + {_hash('id', 164, 800)}",
        "is_canceled": f"{_hash('id', 165, 10)} = 0",
    }
    priced = {"bid": _price("symbol", f"s DIV {_SECONDS}"), "is_completed": "NOT is_open AND NOT is_canceled"}
    paid = {"paid": f"IF(is_completed, CAST(bid * (0.98D + {_hash('id', 166, 400)} / 1e4D) AS DECIMAL(8,2)), NULL)"}
    first = "IF(t_tt_id IN ('TMB', 'TMS'), 'SBMT', 'PNDG')"
    columns = {
        "t_id": "id",
        "t_dts": _time("s"),
        "t_st_id": f"CASE WHEN is_open THEN {first} WHEN is_canceled THEN 'CNCL' ELSE 'CMPT' END",
        "t_is_cash": f"IF({_hash('id', 168, 5)} = 0, '0', '1')",
        "t_s_symb": _symbol("symbol"),
        "t_qty": "CAST(qty AS STRING)",
        "t_bid_price": "CAST(bid AS STRING)",
        "t_ca_id": f"CAST(c * 10 + IF(c % 3 < 2 AND {_hash('id', 167, 2)} = 0, 1, 0) AS STRING)",
        "t_exec_name": f"concat({_one_of('id', 169, _FIRST_NAMES)}, ' ', {_one_of('id', 170, _LAST_NAMES)})",
        "t_trade_price": "CAST(paid AS STRING)",
        "t_chrg": _money("id", 171, 25),
        "t_comm": _money("id", 172, 100),
        "t_tax": f"CAST(CAST(paid * qty * {_hash('id', 173, 30)} / 100 AS DECIMAL(10,2)) AS STRING)",
        "is_sell": "t_tt_id IN ('TMS', 'TLS', 'TSL')",
        "first_status": first,
    }
    return _with(_with(_with(_with(rows, facts), priced), paid), columns)


def _with(rows: str, columns: dict[str, str]) -> str:
    """Rows with further columns."""
    return f"SELECT *, {', '.join(f'{text} AS {name}' for name, text in columns.items())} FROM ({rows})"


def _trade_history(new: str, closed: str) -> str:
    """Events of trades: placed, submitted, closed."""
    limit = f"IF(first_status = 'PNDG', named_struct('at', {_time('s + 30')}, 'st', 'SBMT'), NULL)"
    last = f"IF(is_open, NULL, named_struct('at', {_time('e')}, 'st', t_st_id))"
    first = f"named_struct('at', {_time('s')}, 'st', first_status)"
    events = f"SELECT t_id, inline(filter(array({first}, {limit}, {last}), one -> one IS NOT NULL)) FROM ({new})"
    return f"{events} UNION ALL SELECT t_id, {_time('e')}, t_st_id FROM ({closed})" if closed else events


def _price(symbol: str, day: str) -> str:
    """The price of a security on a day: a base, a wave, and some noise."""
    base = f"(5 + {_hash(symbol, 181, 15_000)} / 100D)"
    wave = f"(1 + 0.25D * sin(({day} + {_hash(symbol, 182, 300)}) / (20D + {_hash(symbol, 183, 60)})))"
    noise = f"(1 + ({_hash(f'{symbol} * 100000 + {day}', 184, 600)} - 300) / 1e4D)"
    return f"CAST({base} * {wave} * {noise} AS DECIMAL(8,2))"


def _daily_market(scale: Scale, batch: Batch) -> str:
    first, end = batch.first_day * scale.symbols, (batch.first_day + batch.days) * scale.symbols
    # Of some days, some securities have no price.
    rows = f"SELECT id FROM range({first}, {end}) WHERE {_hash('id', 191, 100)} > 0"
    numbered = _with(rows, {"symbol": f"id % {scale.symbols}", "day": f"id DIV {scale.symbols}"})
    priced = _with(numbered, {"close": _price("symbol", "day")})
    return (
        f"SELECT {_day('day')}, {_symbol('symbol')}, CAST(close AS STRING), "
        f"CAST(CAST(close * (1 + {_hash('id', 192, 400)} / 1e4D) AS DECIMAL(8,2)) AS STRING), "
        f"CAST(CAST(close * (1 - {_hash('id', 193, 400)} / 1e4D) AS DECIMAL(8,2)) AS STRING), "
        f"CAST({_hash('id', 194, 900_000)} + 1000 AS STRING) FROM ({priced})"
    )


def _cash_transactions(scale: Scale, batch: Batch) -> str:
    historical = scale.rows(50_000, 300)
    first, end = batch.numbers(historical, scale.added(historical, 15))
    second = f"{batch.first_day * _SECONDS} + (id - {first}) * {batch.days * _SECONDS} DIV {end - first}"
    customer = _hash("id", 201, scale.customers)
    amount = f"CAST(CAST(({_hash('id', 202, 2_000_000)} - 900000) / 100 AS DECIMAL(10,2)) AS STRING)"
    kind = _one_of("id", 203, "Deposit Withdrawal Dividend Fee Transfer")
    return f"SELECT CAST({customer} * 10 AS STRING), {_time(second)}, {amount}, {kind} FROM range({first}, {end})"


def _watches(scale: Scale, batch: Batch) -> str:
    historical = scale.rows(60_000, 300)
    first, end = batch.numbers(historical, scale.added(historical, 15))
    starts, each = batch.first_day * _SECONDS, f"{batch.days * _SECONDS} DIV {end - first}"
    # Every third row ends the watch that an earlier one has begun.
    of = f"IF(id % 3 = 2, id - 2 - 3 * {_hash('id', 211, 200)}, id)"
    rows = f"SELECT id, greatest(0, {of}) AS of, {starts} + (id - {first}) * {each} AS s FROM range({first}, {end})"
    return (
        f"SELECT CAST({_hash('of', 212, scale.customers)} AS STRING), {_symbol(_hash('of', 213, scale.symbols))}, "
        f"{_time('s')}, IF(id = of, 'ACTV', 'CNCL') FROM ({rows})"
    )


def _prospects(scale: Scale, batch: Batch) -> str:
    """All prospects; half of them have the name and address of a customer."""
    count = scale.rows(5_000, 100) + 3 * (batch.number - 1)
    customer, version = f"id % {scale.customers}", "IF(id % 2 = 0, 0, 50)"
    name, address = _names(customer), _address(customer, version)
    of = f"id * 100 + IF({_hash('id', 221, 100)} < {batch.number - 1}, {batch.number}, 1)"
    return (
        f"SELECT format_string('AG%07d', id), upper({name['c_l_name']}), {name['c_f_name']}, {_one_of('id', 222, 'F M U')}, "
        f"{address['c_adline1']}, {address['c_zipcode']}, {address['c_city']}, {address['c_state_prov']}, {address['c_ctry']}, "
        f"concat('555-', {_hash('id', 223, 9_000)} + 1000), {_money(of, 224, 400_000)}, CAST({_hash(of, 225, 5)} AS STRING), "
        f"CAST({_hash(of, 226, 5)} AS STRING), {_one_of('id', 227, 'S M D W U')}, CAST(18 + {_hash('id', 228, 80)} AS STRING), "
        f"CAST(300 + {_hash(of, 229, 550)} AS STRING), {_one_of(of, 230, 'O R U')}, "
        f"concat('Employer ', {_hash('id', 231, 200)}), "
        f"CAST({_hash(of, 232, 8)} AS STRING), CAST({_hash(of, 233, 3_000_000)} - 500000 AS STRING) FROM range({count})"
    )
