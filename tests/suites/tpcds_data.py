"""TPC-DS data of our own making: small, seeded, with referential integrity, and made for the queries.

The official generator cannot be shipped, and at its smallest scale most queries give nothing. Here the domain of every
column holds the constants that queries compare it with, often, and what queries need together is made together:

* sales come in tickets and orders of a customer; a third of the lines are returned, with the line's own keys;
* a few customers buy in all three channels, in every year, and buy again by catalog or web what they returned to a store;
* days of sales are drawn from the months and windows that queries look at, so that channels, weeks and years meet;
* foreign keys are NULL now and then.

``_planted`` adds the rows of queries that look for coincidences no small random data has.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from relstate_dagster.jobs.plan.relation import Relation
from tests.suites.changes import Row

Values = dict[str, Any]

#: What makes a day one day: were two days to share it, scalar subqueries of queries would have two rows, an error in SQL.
FIXED = frozenset({"d_date", "d_year", "d_moy", "d_dom", "d_month_seq", "d_week_seq"})

_FIRST_DAY = dt.date(1998, 1, 1)
_FIRST_DATE_SK = 2450815
_DAYS = 1826 + 120
#: Windows of days that queries look at, and how many days of each are drawn from.
_WINDOWS = (
    ("1999-02-22", 30),
    ("1999-02-01", 60),
    ("2000-01-03", 4),
    ("2000-01-27", 90),
    ("2000-02-11", 60),
    ("2000-05-25", 60),
    ("2000-08-03", 50),
    ("2002-02-01", 60),
    ("2001-01-01", 90),
    ("2001-11-01", 60),
    ("1998-11-01", 60),
    ("1999-11-01", 60),
)
#: (category, class, brand) as queries name them together.
_KINDS = (
    ("Books", "personal", "scholaramalgamalg #14"),
    ("Children", "portable", "scholaramalgamalg #7"),
    ("Electronics", "reference", "exportiunivamalg #9"),
    ("Electronics", "self-help", "scholaramalgamalg #9"),
    ("Women", "accessories", "amalgimporto #1"),
    ("Music", "classical", "edu packscholar #1"),
    ("Men", "fragrances", "exportiimporto #1"),
    ("Women", "pants", "importoamalg #1"),
    ("Women", "maternity", "importoamalg #1"),
    ("Books", "computers", "corpbrand #2"),
    ("Electronics", "stereo", "univbrand #3"),
    ("Sports", "football", "edu packbrand #4"),
    ("Men", "shirts", "exportibrand #5"),
    ("Jewelry", "birdal", "amalgbrand #6"),
    ("Women", "dresses", "importobrand #7"),
    ("Home", "bedding", "nameless #8"),
    ("Jewelry", "pendants", "amalgbrand #6"),
    ("Music", "rock", "edu packscholar #1"),
)
#: (category, color, units, size) of q41.
_LOOKS = (
    ("Women", "powder", "Ounce", "medium"),
    ("Women", "khaki", "Oz", "extra large"),
    ("Women", "brown", "Bunch", "N/A"),
    ("Women", "honeydew", "Ton", "small"),
    ("Men", "floral", "N/A", "petite"),
    ("Men", "deep", "Dozen", "large"),
    ("Men", "light", "Box", "medium"),
    ("Men", "cornflower", "Pound", "extra large"),
    ("Women", "midnight", "Pallet", "medium"),
    ("Women", "snow", "Gross", "extra large"),
    ("Women", "cyan", "Cup", "N/A"),
    ("Women", "papaya", "Dram", "small"),
    ("Men", "orange", "Each", "petite"),
    ("Men", "frosted", "Tbl", "large"),
    ("Men", "forest", "Lb", "medium"),
    ("Men", "ghost", "Bundle", "extra large"),
)
_COLORS = ("pale", "chiffon", "slate", "blanched", "burnished", "purple", "burlywood", "indian", "spring", "floral", "medium")
_MANUFACTURERS = (128, 977, 350, 677, 940, 694, 808, 129, 270, 821, 423, 738, 745, 760, 778)
_STATES = [
    "GA",
    "GA",
    "GA",
    "IL",
    "IL",
    "IL",
    "CA",
    "WA",
    "TX",
    "TX",
    "OH",
    "OR",
    "NM",
    "KY",
    "KY",
    "VA",
    "MS",
    "MS",
    "CO",
    "MN",
    "LA",
    "IA",
    "AR",
    "IN",
    "NJ",
    "WI",
    "CT",
    "TN",
]
_COUNTIES = ("Rush County", "Toole County", "Jefferson County", "Dona Ana County", "La Porte County", "Williamson County")
_ZIPS = ("24128", "76232", "85669", "86197", "20548")
_EDUCATIONS = ("College", "College", "2 yr Degree", "4 yr Degree", "Advanced Degree", "Unknown")


def rows(relations: Mapping[str, Relation]) -> dict[str, list[Row]]:
    """All rows of the 24 tables; always the same."""
    made = _Made(random.Random(5))
    _dimensions(made)
    _facts(made)
    _planted(made)
    for name, relation in relations.items():
        unknown = {column for values in made.tables[name] for column in values} - {f.name for f in relation.columns}
        assert not unknown, f"{name} has no columns {sorted(unknown)}"
    return {
        name: [tuple(values.get(f.name) for f in relation.columns) for values in made.tables[name]]
        for name, relation in relations.items()
    }


@dataclass(slots=True)
class _Made:
    """The rows made so far, by table."""

    random: random.Random
    tables: dict[str, list[Values]] = field(default_factory=dict)
    days: list[int] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, **values: Any) -> Values:
        self.tables.setdefault(table, []).append(values)
        return values

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.random.randrange(len(choices))]

    def key(self, table: str) -> int:
        """A key of a dimension."""
        return 1 + self.random.randrange(len(self.tables[table]))

    def maybe(self, value: Any) -> Any:
        return None if self.random.random() < 0.04 else value

    def next(self, name: str) -> int:
        self.numbers[name] = self.numbers.get(name, 0) + 1
        return self.numbers[name]


def date_sk(text: str) -> int:
    """The key of a day in ``date_dim``."""
    return _FIRST_DATE_SK + (dt.date.fromisoformat(text) - _FIRST_DAY).days


def _money(value: float) -> Decimal:
    return Decimal(f"{value:.2f}")


# -- dimensions -------------------------------------------------------------------------------------------------------


def _dimensions(made: _Made) -> None:
    _dates(made)
    _times(made)
    _people(made)
    _items(made)
    _places(made)
    for number in range(1, 21):
        made.add(
            "income_band", ib_income_band_sk=number, ib_lower_bound=(number - 1) * 10000 + 1, ib_upper_bound=number * 10000
        )
    for number in range(1, 9):
        yes = "Y" if number % 2 else "N"
        made.add(
            "promotion",
            p_promo_sk=number,
            p_promo_id=f"PROMO{number}",
            p_start_date_sk=_FIRST_DATE_SK,
            p_cost=Decimal("1000.00"),
            p_item_sk=number,
            p_promo_name=f"promo {number}",
            p_channel_dmail=yes,
            p_channel_email="N",
            p_channel_tv="N",
            p_channel_event="N" if number < 6 else "Y",
            p_discount_active="N",
        )
        made.add("reason", r_reason_sk=number, r_reason_id=f"REASON{number}", r_reason_desc=f"reason {(28, 27, 3)[number % 3]}")
        carrier = ("DHL", "BARIAN", "UPS")[number % 3]
        made.add(
            "ship_mode",
            sm_ship_mode_sk=number,
            sm_ship_mode_id=f"MODE{number}",
            sm_carrier=carrier,
            sm_code="AIR",
            sm_type=("EXPRESS", "OVERNIGHT", "LIBRARY")[number % 3],
            sm_contract=f"c{number}",
        )


def _dates(made: _Made) -> None:
    for number in range(_DAYS):
        day = _FIRST_DAY + dt.timedelta(days=number)
        months = (day.year - 1900) * 12 + day.month - 1
        quarter = (day.month - 1) // 3 + 1
        weeks = (number + 4) // 7 + 5113  # weeks begin on a Sunday; 1998-01-01 was a Thursday
        made.add(
            "date_dim",
            d_date_sk=_FIRST_DATE_SK + number,
            d_date_id=f"D{number:08d}",
            d_date=day,
            d_month_seq=months,
            d_week_seq=weeks,
            d_quarter_seq=months // 3,
            d_year=day.year,
            d_dow=(day.weekday() + 1) % 7,
            d_moy=day.month,
            d_dom=day.day,
            d_qoy=quarter,
            d_fy_year=day.year,
            d_fy_quarter_seq=months // 3,
            d_fy_week_seq=weeks,
            d_day_name=day.strftime("%A"),
            d_quarter_name=f"{day.year}Q{quarter}",
            d_holiday="N",
            d_following_holiday="N",
            d_weekend="Y" if day.weekday() > 4 else "N",
            d_first_dom=_FIRST_DATE_SK + number - day.day + 1,
            d_same_day_ly=_FIRST_DATE_SK + number - 365,
            d_current_day="N",
            d_current_year="N",
        )
        if day.day in (1, 2, 11, 26) and day.year < 2003:
            made.days.append(_FIRST_DATE_SK + number)
    for first, length in _WINDOWS:
        made.days += [date_sk(first) + day for day in range(0, length, 5)] * 3


def _times(made: _Made) -> None:
    for hour in range(24):
        for minute in (0, 15, 35, 50):
            seconds = hour * 3600 + minute * 60
            meal = "breakfast" if 6 <= hour <= 9 else "dinner" if 17 <= hour <= 20 else "lunch" if 11 <= hour <= 14 else None
            made.add(
                "time_dim",
                t_time_sk=seconds,
                t_time_id=f"T{seconds}",
                t_time=seconds,
                t_hour=hour,
                t_minute=minute,
                t_second=0,
                t_am_pm="AM" if hour < 12 else "PM",
                t_shift="first",
                t_sub_shift="morning",
                t_meal_time=meal,
            )


def _people(made: _Made) -> None:
    for number in range(1, 151):
        made.add(
            "customer_demographics",
            cd_demo_sk=number,
            cd_gender=made.pick("MMF"),
            cd_marital_status=made.pick("SSMMWDU"),
            cd_education_status=made.pick(_EDUCATIONS),
            cd_purchase_estimate=made.pick((500, 1000, 5000)),
            cd_credit_rating=made.pick(("Good", "Low Risk", "Unknown")),
            cd_dep_count=made.pick((0, 1, 2, 3)),
            cd_dep_employed_count=made.pick((0, 1, 2)),
            cd_dep_college_count=made.pick((0, 1, 2)),
        )
    for number in range(1, 81):
        made.add(
            "household_demographics",
            hd_demo_sk=number,
            hd_income_band_sk=made.pick(range(1, 11)),
            hd_buy_potential=made.pick((">10000", ">10000", "unknown", "Unknown", "1001-5000")),
            hd_dep_count=made.pick((0, 1, 2, 3, 3, 4, 6, 6, 7)),
            hd_vehicle_count=made.pick((-1, 0, 1, 2, 3, 4)),
        )
    for number in range(1, 161):
        made.add(
            "customer_address",
            ca_address_sk=number,
            ca_address_id=f"A{number}",
            ca_street_number=str(number),
            ca_street_name=made.pick(("Oak", "Elm", "Main")),
            ca_street_type="Ave",
            ca_suite_number=f"Suite {number % 9}",
            ca_city=made.pick(("Fairview", "Midway", "Edgewood", "Oakland")),
            ca_county=made.pick(_COUNTIES),
            ca_state=made.pick(_STATES),
            ca_zip=made.pick(_ZIPS),
            ca_country="United States",
            ca_gmt_offset=Decimal(made.pick(("-5.00", "-5.00", "-7.00"))),
            ca_location_type=made.pick(("apartment", "condo")),
        )
    for number in range(1, 181):
        first_day = _FIRST_DATE_SK + made.random.randrange(700)
        made.add(
            "customer",
            c_customer_sk=number,
            c_customer_id=f"C{number:05d}",
            c_current_cdemo_sk=made.key("customer_demographics"),
            c_current_hdemo_sk=made.key("household_demographics"),
            c_current_addr_sk=made.key("customer_address"),
            c_first_shipto_date_sk=first_day + 30,
            c_first_sales_date_sk=first_day,
            c_salutation=made.pick(("Dr.", "Ms.")),
            c_first_name=made.maybe(made.pick(("Ann", "Bob", "Cy", "Dee", "Eve"))),
            c_last_name=made.maybe(f"Name{number % 60}"),
            c_preferred_cust_flag=made.pick("YYN"),
            c_birth_day=1 + number % 28,
            c_birth_month=1 + number % 12,
            c_birth_year=1930 + number % 60,
            c_birth_country=made.pick(("FRANCE", "PERU", "UNITED STATES")),
            c_login=f"l{number}",
            c_email_address=f"c{number}@example.com",
            c_last_review_date=_FIRST_DATE_SK,
        )


def _items(made: _Made) -> None:
    classes = sorted({kind[1] for kind in _KINDS})
    brands = sorted({kind[2] for kind in _KINDS})
    categories = sorted({kind[0] for kind in _KINDS})
    for number in range(1, 131):
        category, item_class, brand = _KINDS[number % len(_KINDS)]
        color, units, size = made.pick(_COLORS), "Each", "small"
        looks = [look for look in _LOOKS if look[0] == category]
        if looks and made.random.random() < 0.7:
            _, color, units, size = made.pick(looks)
        price = made.pick((0.99, 1.25, 1.49, 64.5, 66.0, 70.0, 72.5, 73.9, 90.0, 55.0))
        made.add(
            "item",
            i_item_sk=number,
            i_item_id=f"I{number // 2:06d}",
            i_item_desc=f"Item {number // 2} of class {item_class}",
            i_rec_start_date=_FIRST_DAY,
            i_current_price=_money(price),
            i_wholesale_cost=_money(price * 0.6),
            i_brand_id=brands.index(brand) + 1,
            i_brand=brand,
            i_class_id=classes.index(item_class) + 1,
            i_class=item_class,
            i_category_id=categories.index(category) + 1,
            i_category=category,
            i_manufact_id=made.pick(_MANUFACTURERS),
            i_manufact=f"maker {number % 12}",
            i_size=size,
            i_color=color,
            i_units=units,
            i_container="Unknown",
            i_manager_id=made.pick((1, 8, 28, 40)),
            i_product_name=f"product {number}",
        )


def _places(made: _Made) -> None:
    for number in range(1, 9):
        made.add(
            "store",
            s_store_sk=number,
            s_store_id=f"S{(number + 1) // 2}",
            s_rec_start_date=_FIRST_DAY,
            s_closed_date_sk=None,
            s_store_name=("ese", "ought", "able")[number % 3],
            s_number_employees=200 + 10 * number,
            s_floor_space=5000,
            s_hours="8AM-8PM",
            s_manager=f"manager {number}",
            s_market_id=8 if number % 2 else 5,
            s_company_id=1,
            s_company_name="Unknown",
            s_street_number=str(number),
            s_street_name="Oak",
            s_street_type="St",
            s_suite_number="Suite 1",
            s_city=("Fairview", "Midway")[number % 2],
            s_zip=_ZIPS[number % len(_ZIPS)],
            s_county=("Williamson County", "Williamson County", "Franklin Parish", "Rush County")[number % 4],
            s_state="TN" if number < 7 else "GA",
            s_country="United States",
            s_gmt_offset=Decimal("-5.00"),
            s_tax_percentage=Decimal("0.05"),
        )
        made.add(
            "web_page",
            wp_web_page_sk=number,
            wp_web_page_id=f"P{number}",
            wp_char_count=5000 + 40 * number,
            wp_link_count=number,
        )
        made.add(
            "catalog_page",
            cp_catalog_page_sk=number,
            cp_catalog_page_id=f"CP{number}",
            cp_department="DEPARTMENT",
            cp_catalog_number=number,
            cp_catalog_page_number=number,
        )
    for number in range(1, 5):
        made.add(
            "call_center",
            cc_call_center_sk=number,
            cc_call_center_id=f"CC{number}",
            cc_name=f"center {number}",
            cc_manager=f"boss {number}",
            cc_county="Williamson County",
            cc_state="TN",
            cc_zip="24128",
        )
        made.add(
            "web_site",
            web_site_sk=number,
            web_site_id=f"W{number}",
            web_name=f"site {number}",
            web_company_name="pri" if number < 4 else "able",
            web_state="TN",
        )
        made.add(
            "warehouse",
            w_warehouse_sk=number,
            w_warehouse_id=f"WH{number}",
            w_warehouse_name=f"Warehouse number {number} of all",
            w_warehouse_sq_ft=10000 * number,
            w_city="Fairview",
            w_county="Williamson County",
            w_state=("TN", "GA")[number % 2],
            w_country="United States",
            w_zip="24128",
            w_gmt_offset=Decimal("-5.00"),
        )


# -- facts ------------------------------------------------------------------------------------------------------------


def _facts(made: _Made) -> None:
    for _ in range(330):
        lines = made.pick((1, 2, 3, 4, 5, 16, 18)) if made.random.random() < 0.9 else 15
        for line in _store_ticket(made, _customer(made), made.pick(made.days), made.random.sample(range(1, 131), lines)):
            if made.random.random() < 0.35:
                _return_to_store(made, line)
    for channel in ("catalog", "web"):
        for _ in range(260):
            lines = made.random.sample(range(1, 131), made.pick((1, 2, 3, 4, 5)))
            ordered = _order(made, channel, _customer(made), made.pick(made.days), lines)
            if made.random.random() < 0.5:
                for line in ordered:
                    if made.random.random() < 0.7:
                        _return_order(made, channel, line)
    days = [
        date_sk(f"{year}-{month:02d}-{day:02d}") for year in (1999, 2000, 2001) for month in range(1, 7) for day in (3, 12, 24)
    ]
    seen = set()
    for _ in range(1500):
        place = (made.pick(days), 1 + made.random.randrange(40), made.key("warehouse"))
        if place not in seen:
            seen.add(place)
            _stock(made, *place, made.pick((0, 3, 8, 20, 150, 300, 450, 900)))


def _customer(made: _Made) -> Values:
    customers = made.tables["customer"]
    return customers[made.random.randrange(20 if made.random.random() < 0.6 else len(customers))]


def _prices(made: _Made, prefix: str) -> Values:
    quantity = 1 + made.random.randrange(100) if made.random.random() < 0.6 else 1 + made.random.randrange(10)
    wholesale = made.random.uniform(2, 80)
    listed = wholesale * made.random.uniform(1, 2.6)
    price = listed * made.random.uniform(0.5, 1)
    paid = price * quantity
    values = {
        "quantity": quantity,
        "wholesale_cost": _money(wholesale),
        "list_price": _money(listed),
        "sales_price": _money(price),
        "ext_discount_amt": _money((listed - price) * quantity),
        "ext_sales_price": _money(paid),
        "ext_wholesale_cost": _money(wholesale * quantity),
        "ext_list_price": _money(listed * quantity),
        "ext_tax": _money(paid * 0.05),
        "coupon_amt": _money(made.pick((0, 0, 500, 1200, 2500))),
        "net_paid": _money(paid),
        "net_paid_inc_tax": _money(paid * 1.05),
        "net_profit": _money((price - wholesale) * quantity),
    }
    if prefix != "ss":
        values |= {"ext_ship_cost": _money(quantity * 1.5), "net_paid_inc_ship": _money(paid + quantity * 1.5)}
        values["net_paid_inc_ship_tax"] = _money(paid * 1.05 + quantity * 1.5)
    return {f"{prefix}_{name}": value for name, value in values.items()}


def _store_ticket(made: _Made, customer: Values, day: int, lines: Sequence[int], **given: Any) -> list[Values]:
    common = {
        "ss_sold_date_sk": made.maybe(day),
        "ss_sold_time_sk": made.maybe(made.pick(made.tables["time_dim"])["t_time_sk"]),
        "ss_customer_sk": made.maybe(customer["c_customer_sk"]),
        "ss_cdemo_sk": customer["c_current_cdemo_sk"],
        "ss_hdemo_sk": customer["c_current_hdemo_sk"],
        "ss_addr_sk": made.maybe(customer["c_current_addr_sk"]),
        "ss_store_sk": made.maybe(made.pick((1, 2, 3, 4, 4, 5, 6, 7, 8))),
        "ss_ticket_number": made.next("ticket"),
    }
    if made.random.random() < 0.3:
        common["ss_cdemo_sk"], common["ss_hdemo_sk"] = made.key("customer_demographics"), made.key("household_demographics")
        common["ss_addr_sk"] = made.key("customer_address")
    return [
        made.add(
            "store_sales",
            **{**common, "ss_item_sk": i, "ss_promo_sk": made.maybe(made.key("promotion")), **_prices(made, "ss"), **given},
        )
        for i in lines
    ]


def _return_to_store(made: _Made, sale: Values, **given: Any) -> Values:
    day = None if sale["ss_sold_date_sk"] is None else sale["ss_sold_date_sk"] + made.pick((3, 20, 40, 70, 100, 130))
    quantity = made.pick((1, sale["ss_quantity"]))
    amount = sale["ss_sales_price"] * quantity
    returned = made.add(
        "store_returns",
        **{
            "sr_returned_date_sk": day,
            "sr_return_time_sk": made.pick(made.tables["time_dim"])["t_time_sk"],
            "sr_item_sk": sale["ss_item_sk"],
            "sr_customer_sk": sale["ss_customer_sk"],
            "sr_cdemo_sk": sale["ss_cdemo_sk"],
            "sr_hdemo_sk": sale["ss_hdemo_sk"],
            "sr_addr_sk": sale["ss_addr_sk"],
            "sr_store_sk": sale["ss_store_sk"],
            "sr_reason_sk": made.key("reason"),
            "sr_ticket_number": sale["ss_ticket_number"],
            "sr_return_quantity": quantity,
            **_amounts(amount, "sr"),
            "sr_return_amt": amount,
            "sr_store_credit": Decimal("1.00"),
            **given,
        },
    )
    if day is not None and returned["sr_customer_sk"] is not None and made.random.random() < 0.6:
        # Bought again elsewhere.
        customer = made.tables["customer"][returned["sr_customer_sk"] - 1]
        _order(made, made.pick(("catalog", "catalog", "web")), customer, day + made.pick((0, 5, 20)), [sale["ss_item_sk"]])
    return returned


def _amounts(amount: Decimal, prefix: str) -> Values:
    values = {
        "return_tax": amount / 20,
        "return_amt_inc_tax": amount * Decimal("1.05"),
        "fee": Decimal("5.00"),
        "return_ship_cost": amount / 10,
        "refunded_cash": amount / 4,
        "reversed_charge": amount / 4,
        "net_loss": amount / 5,
    }
    return {f"{prefix}_{name}": round(value, 2) for name, value in values.items()}


def _order(made: _Made, channel: str, customer: Values, day: int, lines: Sequence[int], **given: Any) -> list[Values]:
    p = {"catalog": "cs", "web": "ws"}[channel]
    common = {
        "sold_date_sk": made.maybe(day),
        "sold_time_sk": made.pick(made.tables["time_dim"])["t_time_sk"],
        "order_number": made.next(channel),
    }
    receiver = customer if made.random.random() < 0.8 else _customer(made)
    for role, person in (("bill", customer), ("ship", receiver)):
        common |= {
            f"{role}_customer_sk": made.maybe(person["c_customer_sk"]),
            f"{role}_cdemo_sk": person["c_current_cdemo_sk"],
            f"{role}_hdemo_sk": person["c_current_hdemo_sk"],
            f"{role}_addr_sk": made.maybe(person["c_current_addr_sk"]),
        }
    common |= (
        {"call_center_sk": made.key("call_center"), "catalog_page_sk": made.key("catalog_page")}
        if channel == "catalog"
        else {"web_page_sk": made.key("web_page"), "web_site_sk": made.key("web_site")}
    )
    added = []
    for item in lines:
        own = {
            "item_sk": item,
            "ship_date_sk": made.maybe(day + made.pick((2, 10, 35, 65, 95, 125))),
            "ship_mode_sk": made.key("ship_mode"),
            "warehouse_sk": made.maybe(made.key("warehouse")),
            "promo_sk": made.maybe(made.key("promotion")),
        }
        values = {f"{p}_{name}": value for name, value in {**common, **own}.items()}
        added.append(made.add(f"{channel}_sales", **{**values, **_prices(made, p), **given}))
    return added


def _return_order(made: _Made, channel: str, sale: Values, **given: Any) -> Values:
    s, p = {"catalog": ("cs", "cr"), "web": ("ws", "wr")}[channel]
    sold = sale[f"{s}_sold_date_sk"]
    quantity = made.pick((1, sale[f"{s}_quantity"]))
    amount = sale[f"{s}_sales_price"] * quantity
    values = {
        "returned_date_sk": None if sold is None else sold + made.pick((3, 20, 40, 70)),
        "item_sk": sale[f"{s}_item_sk"],
        "returned_time_sk": sale[f"{s}_sold_time_sk"],
        "order_number": sale[f"{s}_order_number"],
        "reason_sk": made.key("reason"),
        "return_quantity": quantity,
        "return_amount" if p == "cr" else "return_amt": amount,
        "store_credit" if p == "cr" else "account_credit": Decimal("1.00"),
    }
    for role, source in (("refunded", "bill"), ("returning", "bill" if made.random.random() < 0.7 else "ship")):
        for name in ("customer_sk", "cdemo_sk", "hdemo_sk", "addr_sk"):
            values[f"{role}_{name}"] = sale[f"{s}_{source}_{name}"]
    places = ("call_center_sk", "catalog_page_sk", "ship_mode_sk", "warehouse_sk") if p == "cr" else ("web_page_sk",)
    values |= {name: sale[f"{s}_{name}"] for name in places}
    named = {f"{p}_{name}": value for name, value in values.items()}
    return made.add(f"{channel}_returns", **{**named, **_amounts(amount, p), **given})


def _stock(made: _Made, day: int, item: int, warehouse: int, quantity: int) -> None:
    made.add("inventory", inv_date_sk=day, inv_item_sk=item, inv_warehouse_sk=warehouse, inv_quantity_on_hand=quantity)


# -- coincidences -----------------------------------------------------------------------------------------------------


def _planted(made: _Made) -> None:
    """Rows for single queries; each says for which."""
    customers = made.tables["customer"]
    _plant_stores(made, customers)
    _plant_channels(made, customers)
    _plant_people(made, customers)
    for month in (1, 2):  # q39: stocks that vary by more than their mean, two months on end
        for item in range(1, 7):
            for day, quantity in ((5, 0), (6, 1), (7, 2), (8, 900 + item)):
                _stock(made, date_sk(f"2001-{month:02d}-{day:02d}"), item, 1 + item % 2, quantity)


def _key_of(made: _Made, table: str, key: str, **wanted: Any) -> int:
    """The key of a dimension row with these values; the last row is given them where there is none."""
    found = [row for row in made.tables[table] if all(row[name] in _any(value) for name, value in wanted.items())]
    if not found:
        found = [made.tables[table][-1 - made.next(table)]]
        found[0].update({name: _any(value)[0] for name, value in wanted.items()})
    return int(made.pick(found)[key])


def _any(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _plant_stores(made: _Made, customers: list[Values]) -> None:
    def sell(customer: int, day: str, lines: Sequence[int], **given: Any) -> list[Values]:
        sold = {"ss_sold_date_sk": date_sk(day), "ss_customer_sk": customer, "ss_store_sk": made.pick((1, 4, 5)), **given}
        return _store_ticket(made, customers[customer - 1], sold["ss_sold_date_sk"], lines, **sold)

    for customer in (1, 2, 3, 1, 2, 3):  # q6: many dear items in a state, in January 2000
        sell(customer, "2000-01-26", made.random.sample(range(1, 131), 18))
    lines = made.random.sample(range(1, 131), 18)
    for day in ("1999-12-11", "2000-12-11"):  # q14b: the same brands in the same week of two years
        sell(4, day, lines, ss_quantity=95, ss_list_price=Decimal("190.00"))
    for customer in (5, 6, 5, 6, 5, 6, 7):  # q23: items sold often on one day, to the best customers
        sell(customer, "2000-02-26", [7, 8, 9], ss_quantity=100, ss_sales_price=Decimal("290.00"))
    for channel in ("catalog", "web"):
        for customer in (5, 6, 5, 6):
            bill = {f"{channel[0]}s_bill_customer_sk": customer, f"{channel[0]}s_sold_date_sk": date_sk("2000-02-27")}
            _order(made, channel, customers[customer - 1], bill[f"{channel[0]}s_sold_date_sk"], [7, 8, 9], **bill)
    for day in ("2000-11-02", "2000-11-11"):  # q42, q52
        sell(8, day, made.random.sample(range(1, 131), 18))
    for year in (1999, 2000, 2001):  # q68: bought elsewhere than where the customer lives
        for customer in (9, 10, 11, 12):
            home = made.tables["customer_address"][customers[customer - 1]["c_current_addr_sk"] - 1]["ca_city"]
            cities = tuple(c for c in ("Fairview", "Midway", "Oakland") if c != home)
            hdemo = _key_of(made, "household_demographics", "hd_demo_sk", hd_dep_count=4)
            address = _key_of(made, "customer_address", "ca_address_sk", ca_city=cities)
            sell(customer, f"{year}-06-02", [20, 30, 40], ss_hdemo_sk=hdemo, ss_addr_sk=address)
    for item in (60, 61, 62):  # q64: returned items of one store in two years
        made.tables["item"][item - 1].update(i_color="purple", i_current_price=Decimal("70.00"))
        for year, customer in ((1999, 13), (2000, 14), (1999, 15), (2000, 16)):
            own = made.tables["customer_demographics"][customers[customer - 1]["c_current_cdemo_sk"] - 1]["cd_marital_status"]
            other = tuple(m for m in "SMWD" if m != own)
            cdemo = _key_of(made, "customer_demographics", "cd_demo_sk", cd_marital_status=other)
            address = customers[customer - 1]["c_current_addr_sk"]
            sold = sell(customer, f"{year}-05-11", [item], ss_store_sk=1, ss_cdemo_sk=cdemo, ss_promo_sk=1, ss_addr_sk=address)
            _return_to_store(made, sold[0])
        for customer in (13, 14):
            _return_order(made, "catalog", _order(made, "catalog", customers[customer - 1], date_sk("1999-06-02"), [item])[0])


def _plant_channels(made: _Made, customers: list[Values]) -> None:
    def buy(channel: str, customer: int, day: str, lines: Sequence[int], **values: Any) -> list[Values]:
        p = {"store": "ss", "catalog": "cs", "web": "ws"}[channel]
        role = "customer_sk" if p == "ss" else "bill_customer_sk"
        given = {f"{p}_{n}": v for n, v in {"sold_date_sk": date_sk(day), role: customer, **values}.items()}
        if p == "ss":
            return _store_ticket(made, customers[customer - 1], date_sk(day), lines, **given)
        return _order(made, channel, customers[customer - 1], date_sk(day), lines, **given)

    for channel in ("store", "catalog", "web"):
        for item in range(70, 90, 2):  # q58: one revenue in all channels within one week
            buy(channel, 17, "2000-01-05", [item], ext_sales_price=Decimal("50000.00") + item)
        for customer in (4, 5, 6, 7, 8):  # q78, q38: one customer, item and day in all channels, nothing sent back
            buy(channel, customer, "2000-04-11", [31, 33, 35])
    returned = {
        "store": _return_to_store,
        "catalog": lambda m, sale, **g: _return_order(m, "catalog", sale, **g),
        "web": lambda m, sale, **g: _return_order(m, "web", sale, **g),
    }
    for channel, p in (("store", "sr"), ("catalog", "cr"), ("web", "wr")):  # q83: sent back in the same weeks
        for day, sent_back in (("2000-06-26", "2000-06-30"), ("2000-09-26", "2000-09-27"), ("2000-11-11", "2000-11-17")):
            for sale in buy(channel, 18, day, [50, 52, 54, 56]):
                returned[channel](made, sale, **{f"{p}_returned_date_sk": date_sk(sent_back)})
    for reason in (1, 2, 3, 4):  # q85: one demography sends back what one like it bought
        cdemo = _key_of(made, "customer_demographics", "cd_demo_sk", cd_marital_status="S", cd_education_status="College")
        address = _key_of(made, "customer_address", "ca_address_sk", ca_state=("IN", "OH", "NJ"))
        price = {"sales_price": Decimal("75.00"), "net_profit": Decimal("150.00"), "web_page_sk": reason}
        for sale in buy("web", 19, "2000-07-11", [100 + reason, 110 + reason], **price):
            _return_order(
                made,
                "web",
                sale,
                wr_refunded_cdemo_sk=cdemo,
                wr_returning_cdemo_sk=cdemo,
                wr_refunded_addr_sk=address,
                wr_reason_sk=reason,
            )
    divorced = _key_of(made, "customer_demographics", "cd_demo_sk", cd_marital_status="D")
    rich = _key_of(made, "household_demographics", "hd_demo_sk", hd_buy_potential=">10000")
    for day, stocked in (("1999-03-01", "1999-03-04"), ("1999-06-02", "1999-06-03")):  # q72: ordered more than there is
        for number in range(3):
            shipped = date_sk(day) + 10 + number
            lines = [1, 2, 3, 4, 5]
            buy("catalog", 20, day, lines, bill_cdemo_sk=divorced, bill_hdemo_sk=rich, ship_date_sk=shipped, quantity=90)
        for item in (1, 2, 3, 4, 5):
            _stock(made, date_sk(stocked) + 2, item, 1, 3)


def _plant_people(made: _Made, customers: list[Values]) -> None:
    for number in (2, 3, 21, 22):  # q54: buys maternity by catalog, then in stores of the own county
        address = made.tables["customer_address"][customers[number - 1]["c_current_addr_sk"] - 1]
        address.update(ca_county="Williamson County", ca_state="TN")
        day = date_sk("1998-12-02")
        _order(made, "catalog", customers[number - 1], day, [8, 26], cs_bill_customer_sk=number, cs_sold_date_sk=day)
        for month in (1, 2, 3):
            day = date_sk(f"1999-{month:02d}-11")
            _store_ticket(made, customers[number - 1], day, [5, 15], ss_customer_sk=number, ss_sold_date_sk=day)
    for number, (status, education) in ((23, ("M", "Unknown")), (24, ("W", "Advanced Degree")), (25, ("M", "Unknown"))):  # q91
        cdemo = _key_of(made, "customer_demographics", "cd_demo_sk", cd_marital_status=status, cd_education_status=education)
        hdemo = _key_of(made, "household_demographics", "hd_demo_sk", hd_buy_potential="Unknown")
        address = _key_of(made, "customer_address", "ca_address_sk", ca_gmt_offset=Decimal("-7.00"))
        customers[number - 1].update(c_current_cdemo_sk=cdemo, c_current_hdemo_sk=hdemo, c_current_addr_sk=address)
        for sale in _order(made, "catalog", customers[number - 1], date_sk("1998-10-26"), [3, 6, 9]):
            _return_order(made, "catalog", sale, cr_returning_customer_sk=number, cr_returned_date_sk=date_sk("1998-11-11"))
    _plant_demographies(made, customers)


def _plant_demographies(made: _Made, customers: list[Values]) -> None:
    for number in range(31, 37):  # q18: customers of some months and states
        customers[number - 1]["c_birth_month"] = 8
        address = _key_of(made, "customer_address", "ca_address_sk", ca_state=("MS", "IN", "NM", "VA"))
        customers[number - 1]["c_current_addr_sk"] = address
        cdemo = _key_of(made, "customer_demographics", "cd_demo_sk", cd_gender="F", cd_education_status="Unknown")
        day = date_sk("1998-06-02")
        given = {"cs_bill_cdemo_sk": cdemo, "cs_sold_date_sk": day, "cs_bill_customer_sk": number}
        _order(made, "catalog", customers[number - 1], day, [4, 8, 12], **given)
        _order(made, "web", customers[number - 1], date_sk("2001-05-11"), [2, 11, 29])  # q45
    prices = (
        ("S", "College", "75.00", 1),
        ("M", "Advanced Degree", "120.00", 3),
        ("W", "2 yr Degree", "175.00", 3),
        ("M", "4 yr Degree", "120.00", 3),
        ("D", "2 yr Degree", "60.00", 1),
        ("S", "College", "175.00", 1),
    )
    for status, education, price, dependents in prices * 2:  # q13, q48: demographies, prices, states and profits together
        cdemo = _key_of(made, "customer_demographics", "cd_demo_sk", cd_marital_status=status, cd_education_status=education)
        for states in (("TX", "OH"), ("OR", "KY"), ("VA", "MS")):
            address = _key_of(made, "customer_address", "ca_address_sk", ca_state=states)
            hdemo = _key_of(made, "household_demographics", "hd_demo_sk", hd_dep_count=dependents)
            _store_ticket(
                made,
                customers[40],
                date_sk("2001-08-11"),
                [made.key("item")],
                ss_sold_date_sk=date_sk("2001-08-11"),
                ss_cdemo_sk=cdemo,
                ss_hdemo_sk=hdemo,
                ss_addr_sk=address,
                ss_sales_price=Decimal(price),
                ss_store_sk=2,
                ss_net_profit=Decimal("180.00"),
            )
    for hour in (20, 8, 9, 10, 11, 12):  # q96, q88
        for minute in (15, 35):
            hdemo = _key_of(made, "household_demographics", "hd_demo_sk", hd_dep_count=7 if hour == 20 else 2)
            seconds = hour * 3600 + minute * 60
            lines = made.random.sample(range(1, 131), 4)
            _store_ticket(
                made, customers[41], made.pick(made.days), lines, ss_sold_time_sk=seconds, ss_hdemo_sk=hdemo, ss_store_sk=3
            )
    for hour in (8, 9, 19, 20):  # q90: so many that no epoch divides by a count of 0
        for minute in (0, 15, 35, 50):
            hdemo = _key_of(made, "household_demographics", "hd_demo_sk", hd_dep_count=6)
            given = {
                "ws_sold_time_sk": hour * 3600 + minute * 60,
                "ws_ship_hdemo_sk": hdemo,
                "ws_web_page_sk": made.pick((1, 2)),
            }
            _order(made, "web", customers[42], made.pick(made.days), made.random.sample(range(1, 131), 4), **given)
