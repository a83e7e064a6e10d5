"""Values and names that cannot be stored: a clear error or a counted drop."""

import math

import pegel
import pytest


@pytest.fixture(autouse=True)
def fresh_counts():
    from pegel import _native

    _native.reset_drop_counts()


HANDLES = {
    "add": pegel.counter("bad_total"),
    "set": pegel.gauge("bad"),
    "record": pegel.histogram("bad_size"),
    "point": pegel.point("bad_point"),
    "seconds": pegel.timer("bad_time"),
    "joules": pegel.float_counter("bad_joules"),
}


@pytest.mark.parametrize("value", [None, "1", b"1", [1], {}, object(), 1j])
def test_a_value_of_the_wrong_type_is_a_type_error(value):
    calls = [
        HANDLES["add"].add,
        HANDLES["set"].set,
        HANDLES["set"].add,
        HANDLES["record"].record,
        HANDLES["point"].add,
        HANDLES["seconds"].record,
        HANDLES["joules"].add,
        lambda value: pegel.Telemetry().add_data("bad", value),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=f"number, not {type(value).__name__}"):
            call(value)
    assert pegel.dropped() == {}


def test_a_counter_explains_where_fractions_go():
    with pytest.raises(TypeError, match="use float_counter for fractions"):
        HANDLES["add"].add(0.5)


def test_numbers_that_no_series_holds_are_dropped_and_counted():
    t = pegel.Telemetry()
    for value in (math.nan, math.inf, -math.inf):
        HANDLES["set"].set(value)
        HANDLES["record"].record(value)
        HANDLES["point"].add(value)
        t.add_data("bad", value)
    assert pegel.dropped() == {"not_finite": 12}
    HANDLES["add"].add(-1)
    HANDLES["add"].add(-(2**200))
    HANDLES["seconds"].record(-0.5)
    HANDLES["joules"].add(-0.5)
    HANDLES["add"].add(2**63)
    HANDLES["add"].add(2**200)
    HANDLES["set"].set(10**400)
    t.add_data("bad", 10**400)
    HANDLES["point"].add(1, -5)
    HANDLES["point"].add(1, math.nan)
    HANDLES["point"].add(1, 10**400)
    t.add_data("bad", 1, timestamp=10**18)
    assert pegel.dropped() == {"not_finite": 12, "negative": 4, "too_large": 4, "bad_time": 4}


def test_a_time_of_the_wrong_type_is_a_type_error():
    for time in ("now", [], b"1"):
        with pytest.raises(TypeError, match="seconds since 1970 or a datetime"):
            HANDLES["point"].add(1, time)


def test_everything_that_is_a_number_is_accepted(running):
    running.python(
        """
        import decimal, fractions, pegel
        c, g = pegel.counter("n_total"), pegel.gauge("g")
        c.add(True); c.add(2)
        p = pegel.point("p")
        p.add(decimal.Decimal("0.5"), 1e9); p.add(fractions.Fraction(1, 4), 1e9 + 1)
        p.add(False, 1e9 + 2); p.add(7, 1e9 + 3)
        assert pegel.dropped() == {}, pegel.dropped()
        """
    )
    running.wait_for({"n_total": 3})


def test_numpy_scalars_are_numbers():
    numpy = pytest.importorskip("numpy")
    for kind in (numpy.int8, numpy.uint16, numpy.int64, numpy.uint64):
        HANDLES["add"].add(kind(3))
    for kind in (numpy.float16, numpy.float32, numpy.float64, numpy.int32, numpy.bool_):
        HANDLES["set"].set(kind(1))
        pegel.Telemetry().add_data("bad", kind(1))
    HANDLES["set"].set(numpy.array(1.5))
    assert pegel.dropped() == {}
    HANDLES["set"].set(numpy.float32("nan"))
    HANDLES["add"].add(numpy.int64(-1))
    assert pegel.dropped() == {"not_finite": 1, "negative": 1}
    with pytest.raises(TypeError, match="whole number, not float32"):
        HANDLES["add"].add(numpy.float32(1))
    with pytest.raises(TypeError):
        HANDLES["set"].set(numpy.array([1.0, 2.0]))


@pytest.mark.parametrize(
    "name, reason",
    [
        ("", "name is empty"),
        ("a{b}", "contains a brace"),
        ("a\nb", "control character"),
        ('a"b', "quote"),
        ("x" * 5000, "exceed 4096 bytes"),
        ("\ud800", "surrogates"),
    ],
)
def test_an_odd_name_is_a_value_error(name, reason):
    for create in (pegel.counter, pegel.gauge, pegel.point, pegel.timed):
        with pytest.raises(ValueError, match=reason) as error:
            create(name)
        assert len(str(error.value)) < 200
    with pytest.raises(ValueError, match=reason):
        pegel.Telemetry().add_data(name, 1)


@pytest.mark.parametrize("name", [None, 7, b"bytes", ["a"]])
def test_a_name_that_is_not_text_is_a_type_error(name):
    with pytest.raises(TypeError, match="str"):
        pegel.counter(name)
    with pytest.raises(TypeError, match="str"):
        pegel.Telemetry().add_data(name, 1)


def test_odd_labels_are_errors():
    for labels, reason in (
        ({"a=b": 1}, "label key"),
        ({"": 1}, "label key"),
        ({"pid": 1}, "set by the agent"),
        ({f"k{n}": n for n in range(33)}, "more than 32 labels"),
    ):
        with pytest.raises(ValueError, match=reason):
            pegel.counter("labelled_total", labels=labels)
    for labels in ({"a": None}, {1: "a"}, [("a", 1)]):
        with pytest.raises(TypeError):
            pegel.counter("labelled_total", labels=labels)
    with pytest.raises(ValueError, match="aggregation"):
        pegel.gauge("g", aggregation="mean")
    with pytest.raises(ValueError, match="level"):
        pegel.gauge("g", level=1000)


def test_names_without_end_are_bounded_and_counted(node):
    done = node.python(
        """
        import pegel
        t = pegel.Telemetry()
        for n in range(5000):
            t.add_data(f"name_{n}", n)
        for n in range(80_000):
            pegel.counter(f"count_{n}_total").add(1)
        print(pegel.dropped()["no_room"] > 5000)
        """
    )
    assert done.stdout == "True\n"


def test_nothing_of_this_affects_other_series(running):
    running.python(
        """
        import pegel, math
        good = pegel.counter("good_total")
        for bad in (None, "x", 1.5, -1, 2**70):
            good.add(1)
            try:
                pegel.counter("worse_total").add(bad)
            except TypeError:
                pass
            pegel.gauge("worse").set(math.nan)
        """
    )
    running.wait_for({"good_total": 5})
    assert running.values("worse*").get("worse_total") == 0
