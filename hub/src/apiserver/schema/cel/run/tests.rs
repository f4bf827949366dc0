use super::*;
use crate::apiserver::schema::Schema;
use crate::apiserver::schema::cel::{Scope, to_cel};
use serde_json::{Value, json};

fn ran(schema: &Value, value: &Value, rule: &str) -> (Told, u64) {
    ran_within(Work::new(), schema, value, rule)
}

fn ran_within(mut work: Work, schema: &Value, value: &Value, rule: &str) -> (Told, u64) {
    let scope = Scope::of(schema, false).expect("a schema");
    let program = scope.program(rule, false);
    let program = program.unwrap_or_else(|why| panic!("{rule}: {why}"));
    let mut lists = Lists::default();
    let this = to_cel(&Schema::from_openapi(schema), value, &mut lists);
    program.run(this.clone(), Some(this), &lists, &mut work)
}

fn objects() -> (Value, Value) {
    let schema = json!({"type": "object", "properties": {
        "val": {"type": "object", "additionalProperties": {"type": "integer"}},
        "listMap": {"type": "array", "items": {"type": "object", "properties": {
            "k": {"type": "string"}, "v": {"type": "string"}, "v2": {"type": "string"}}}},
        "array": {"type": "array", "items": {"type": "integer"}},
        "set": {"type": "array", "items": {"type": "string"}},
        "big": {"type": "array", "items": {"type": "integer"}},
        "s": {"type": "string"}, "n": {"type": "integer"}, "d": {"type": "number"},
        "e": {"x-kubernetes-int-or-string": true},
        "a": {"type": "object", "properties": {"b": {"type": "integer"}, "c": {"type": "integer"}}},
    }});
    let value = json!({
        "val": {"b": 1, "d": 2},
        "listMap": [{"k": "a1", "v": "b1"}, {"k": "a2", "v": "b2"}, {"k": "a3", "v": "b3", "v2": "z"}],
        "array": [1, 1, 2, 2, 3, 3, 4, 5],
        "set": ["a", "b", "c"],
        "big": (0..1000).collect::<Vec<i64>>(),
        "s": "Rook takes 👑", "n": 10, "d": 10.0, "e": "80%",
        "a": {"b": 1},
    });
    (schema, value)
}

#[test]
fn steps_are_counted_as_on_a_real_server() {
    let (schema, value) = objects();
    for (rule, cost) in [
        ("has(self.a.b)", 2),
        ("!has(self.a.c)", 3),
        ("'b' in self.val", 3),
        ("self.val.all(k, self.val[k] > 0)", 17),
        ("!self.val.exists(k, self.val[k] == 3)", 20),
        ("self.val.exists_one(k, self.val[k] == 2)", 14),
        ("size(self.val) == 2", 4),
        ("size(self.val.filter(k, self.val[k] > 1)) == 1", 26),
        ("self.val.all(k, v, v > 0)", 13),
        ("!self.val.exists(k, v, v == 3)", 16),
        ("self.val.existsOne(k, v, v == 2)", 10),
        ("self.val.transformMap(k, v, v > 1, v + 1).size() == 1", 14),
        ("self.val.transformMap(k, v, v + 1).size() == 2", 15),
        (
            "self.val.transformMapEntry(k, v, v > 1, {k + '2': v + 1}).size() == 1",
            45,
        ),
        ("has(self.listMap[0].v)", 3),
        ("self.listMap.all(m, m.k.startsWith('a'))", 21),
        ("self.listMap.all(m, !has(m.v2) || m.v2 == 'z')", 21),
        ("self.listMap.exists(m, m.k.endsWith('1'))", 13),
        ("self.listMap.exists_one(m, m.k == 'a3')", 15),
        ("!self.listMap.exists(m, m.v == 'x')", 25),
        ("size(self.listMap.filter(m, m.k == 'a1')) == 1", 27),
        ("self.listMap.map(m, m.v).exists(v, v == 'b1')", 55),
        ("self.listMap.exists(m, has(m.v2) && m.v2 == 'z')", 21),
        ("!self.listMap.all(m, m.v2 != 'z')", 22),
        ("self.listMap.exists(m, m.v2 == 'z')", 24),
        (
            "self.listMap.map(m, has(m.v2) && m.v2 == 'z', m.v2).size() == 1",
            25,
        ),
        ("self.listMap.transformList(i, m, m.v).size() == 3", 47),
        ("2 in self.array", 10),
        ("self.array.all(e, e > 0)", 43),
        ("self.array.exists(e, e > 2)", 36),
        ("self.array.exists_one(e, e > 4)", 22),
        ("!self.array.all(e, e < 2)", 21),
        ("size(self.array.filter(e, e%2 == 0)) == 3", 68),
        (
            "self.array.map(e, e * 20).filter(e, e > 50).exists(e, e == 60)",
            194,
        ),
        ("self.array.transformList(i, e, e * 2).size() > 0", 117),
        ("sets.contains(self.set, ['a'])", 6),
        ("sets.equivalent(self.set, ['a', 'b', 'c'])", 21),
        ("sets.contains(self.big, [1])", 1003),
        ("self.s.startsWith('Rook')", 4),
        ("self.s.matches('^[^0-9]*$')", 8),
        ("type(self.s) == string", 4),
        ("size(self.s) == 12", 4),
        ("self.s.charAt(3) == 'k'", 4),
        ("self.s.indexOf('o') == 1", 4),
        ("self.s.replace(' ', 'x') == 'Rookxtakesx👑'", 7),
        ("self.s.split(' ') == ['Rook', 'takes', '👑']", 6),
        ("self.s.substring(4, 10).trim() == 'takes'", 6),
        ("self.s.lowerAscii() == self.s.lowerAscii()", 10),
        ("double(self.n) < 10.5", 4),
        ("double(5) < 10.0", 1),
        ("self.n < int(self.d) + 1", 7),
        ("self.e in ['80%', '90%']", 2),
        ("self.set + ['d'] == ['a', 'b', 'c', 'd']", 4),
        ("type(self.e) == int ? self.e > 5 : self.e.endsWith('%')", 7),
        ("self == oldSelf", 3),
    ] {
        let (told, counted) = ran(&schema, &value, rule);
        assert_eq!(told, Ok(Cel::Bool(true)), "{rule}");
        assert_eq!(counted, cost, "{rule}");
    }
}

#[test]
fn what_people_write_is_told() {
    let (schema, value) = objects();
    for (rule, wanted) in [
        ("self.?s.optMap(t, t.size()).orValue(0) == 12", true),
        ("self.a.?c.orValue(7) == 7 && !self.a.?c.hasValue()", true),
        (
            "self.listMap[?7].hasValue() || self.listMap[?0].hasValue()",
            true,
        ),
        (
            "self.set.sortBy(x, x == 'a' ? 9 : 1) == ['b', 'c', 'a']",
            true,
        ),
        (
            "[3, 1, 2].sort() == [1, 2, 3] && lists.range(3) == [0, 1, 2]",
            true,
        ),
        ("quantity('1Gi').isGreaterThan(quantity('1Mi'))", true),
        (
            "url('https://a.b/c').getHost() == 'a.b' && isURL('https://a.b')",
            true,
        ),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", true),
        ("semver('1.2.3').compareTo(semver('1.10.0')) < 0", true),
        ("!format.dns1123Label().validate('a-b').hasValue()", true),
        ("'%s is %d'.format([self.s, self.n]).endsWith('10')", true),
        ("duration('1h') + duration('30m') == duration('90m')", true),
        (
            "timestamp('2020-01-01T00:00:00Z').getFullYear() == 2020",
            true,
        ),
        (
            "string(self.n) == '10' && int('7') == 7 && bool('true')",
            true,
        ),
        (
            "self.array.sum() == 21 && self.array.max() == 5 && !self.set.isSorted()",
            false,
        ),
        ("false && self.listMap[9].k == 'a'", false),
        ("self.listMap[9].k == 'a' || true", true),
    ] {
        let (told, _) = ran(&schema, &value, rule);
        assert_eq!(told, Ok(Cel::Bool(wanted)), "{rule}");
    }
    for (rule, why) in [
        ("self.a.c == 1", "no such key: c"),
        ("self.val['x'] == 1", "no such key: x"),
        ("self.listMap[9].k == 'a'", "index out of bounds: 9"),
        ("self.n / (self.n - 10) == 1", "division by zero"),
        ("self.n * 9223372036854775807 == 1", "integer overflow"),
        ("self.e > 5", "no such overload"),
    ] {
        let (told, _) = ran(&schema, &value, rule);
        assert_eq!(told, Err(Stop::Error(why.to_owned())), "{rule}");
    }
}

#[test]
fn what_runs_away_ends() {
    let (schema, value) = objects();
    for rule in [
        "self.big.all(a, self.big.all(b, self.big.all(c, a + b + c >= 0)))",
        "self.big.map(a, self.big.map(b, self.big)).size() == 1000",
        "lists.range(10000000).size() > 5",
        "self.big.map(a, self.s).join('x').replace('x', self.big.map(a, self.s).join('y')) != ''",
    ] {
        let (told, cost) = ran(&schema, &value, rule);
        assert_eq!(told, Err(Stop::Cost), "{rule}");
        assert!(cost <= MOST_OF_ONE + 100_000, "{rule}: {cost}");
    }
    let (told, _) = ran(
        &schema,
        &value,
        "self.big.all(a, self.big.exists(b, a == b))",
    );
    assert_eq!(told, Err(Stop::Cost));
    let (told, cost) = ran(
        &schema,
        &value,
        "self.big.map(a, a + 1).map(a, a * 2).size() == 1000",
    );
    assert_eq!(told, Ok(Cel::Bool(true)));
    assert!(cost < 50_000, "{cost}");
}

#[test]
fn what_grows_out_of_nothing_ends() {
    let (schema, value) = objects();
    let doubled = |each: &str, times| format!("[[1]]{}", format!(".map(a, {each})").repeat(times));
    for rule in [
        doubled("a + a", 40) + ".size() == 1",
        // The same list in many places weighs nothing, until somebody walks through all of it.
        format!("{0} == {0}", doubled("[a, a]", 40)),
        format!("'%s'.format([{}]) == ''", doubled("[a, a]", 40)),
        format!("dyn({}).flatten(50).size() == 1", doubled("[a, a]", 40)),
        format!("{} in [{}]", doubled("[a, a]", 40), doubled("[a, a]", 40)),
        "self.big.map(a, 'x'.replace('', self.s.replace('', self.s))).map(a, a.replace('', a)).join('') == ''"
            .to_owned(),
    ] {
        let (told, _) = ran_within(Work::of(10_000), &schema, &value, &rule);
        assert_eq!(told, Err(Stop::Cost), "{rule}");
    }
    let (told, _) = ran(
        &schema,
        &value,
        &format!("{}[0].size() == 2", doubled("[a, a]", 40)),
    );
    assert_eq!(told, Ok(Cel::Bool(true)));
}

#[test]
fn what_the_library_did_not_think_of_is_no_end_of_the_server() {
    let (schema, value) = objects();
    for (rule, told) in [
        ("'%.70000f'.format([1.0]) != ''", None),
        (
            "format.datetime().validate('2024-01-01T12:34:5\u{e9}Z').hasValue()",
            None,
        ),
        // Some are no numbers, and come last.
        (
            "lists.range(100).sortBy(a, a % 3 == 0 ? 0.0 / 0.0 : double(a % 7)).size() == 100",
            Some(true),
        ),
        (
            "lists.range(100).map(a, a % 3 == 0 ? 0.0 / 0.0 : double(a % 7)).sort()[0] == 0.0",
            Some(true),
        ),
    ] {
        let (found, _) = ran(&schema, &value, rule);
        match told {
            Some(told) => assert_eq!(found, Ok(Cel::Bool(told)), "{rule}"),
            None => assert!(matches!(found, Err(Stop::Error(_))), "{rule}: {found:?}"),
        }
    }
}

#[test]
fn quantities_are_no_larger_than_they_become() {
    let (schema, value) = objects();
    for (rule, told) in [
        (
            "quantity('1e100').isGreaterThan(quantity('10Gi'))",
            Ok(true),
        ),
        (
            "quantity('1e40').compareTo(quantity('9223372036854775807')) == 0",
            Ok(true),
        ),
        (
            "quantity('1e30').sub(quantity('1n')).isLessThan(quantity('1E'))",
            Ok(false),
        ),
        ("isQuantity('1e2000000000') || isQuantity(' 1 ')", Ok(false)),
        (
            "quantity('1.5Gi').asInteger() == 1610612736 && quantity('100n').isGreaterThan(quantity('0'))",
            Ok(true),
        ),
        (
            "quantity('x').isInteger()",
            Err("quantities must match the regular expression"),
        ),
    ] {
        match (ran(&schema, &value, rule).0, told) {
            (Ok(found), Ok(told)) => assert_eq!(found, Cel::Bool(told), "{rule}"),
            (Err(Stop::Error(found)), Err(told)) => assert!(found.contains(told), "{found}"),
            (found, _) => panic!("{rule}: {found:?}"),
        }
    }
}

#[test]
fn texts_are_searched_in_one_walk() {
    let (schema, mut value) = objects();
    let half = "a".repeat(600_000);
    value["s"] = json!(format!("{half}{half}"));
    value["set"] = json!([format!("{half}b")]);
    for rule in [
        "self.s.indexOf(self.set[0]) == -1",
        "self.s.lastIndexOf(self.set[0]) == -1",
        "'tacocat \u{df}x'.indexOf('x') == 9 && 'tacocat'.indexOf('c', 3) == 4",
        "'tacocat'.indexOf('ac', 9) == -1 && 'tacocat'.indexOf('', 3) == 3",
        "'tacocat'.lastIndexOf('c') == 4 && 'tacocat'.lastIndexOf('c', 3) == 2",
        "'\u{df}\u{df}a'.lastIndexOf('\u{df}') == 1 && 'abc'.lastIndexOf('bc', 1) == 1",
        "'tacocat'.lastIndexOf('') == 7 && 'tacocat'.lastIndexOf('t', 0) == 0",
    ] {
        assert_eq!(ran(&schema, &value, rule).0, Ok(Cel::Bool(true)), "{rule}");
    }
}

#[test]
fn patterns_are_gos() {
    let (schema, value) = objects();
    for (rule, told) in [
        ("'\u{661}'.matches('^\\\\d$')", false),
        ("'[a'.matches('^[[a]+$') && 'a/b'.find('/.') == '/b'", true),
        (
            "'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1']",
            true,
        ),
        (
            "self.set.all(x, self.set.exists(y, y.matches('^' + x + '$')))",
            true,
        ),
    ] {
        assert_eq!(ran(&schema, &value, rule).0, Ok(Cel::Bool(told)), "{rule}");
    }
    // Many may be read, each once.
    let (told, _) = ran(
        &schema,
        &value,
        "self.big.all(a, ''.matches('(' + string(a) + ')*'))",
    );
    assert_eq!(told, Ok(Cel::Bool(true)));
}

#[test]
fn maps_are_walked_in_the_order_of_their_keys() {
    let (schema, mut value) = objects();
    value["val"] = json!({"d": 4, "a": 1, "e": 5, "c": 3, "b": 2});
    for _ in 0..20 {
        let rule = "self.val.map(k, k) == ['a', 'b', 'c', 'd', 'e']";
        assert_eq!(ran(&schema, &value, rule).0, Ok(Cel::Bool(true)));
    }
}

#[test]
fn a_set_stays_one_wherever_it_is_put() {
    let set =
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let schema = json!({"type": "object", "properties": {"s": set, "t": set}});
    let value = json!({"s": ["a", "b"], "t": ["b", "a"]});
    for rule in [
        "self.s == self.t",
        "optional.of(self.s).value() == self.t",
        "[self.s][0] == self.t",
        "self.s in [self.t]",
    ] {
        assert_eq!(ran(&schema, &value, rule).0, Ok(Cel::Bool(true)), "{rule}");
    }
}

#[test]
fn what_is_no_value_is_told_to_whoever_looks() {
    let schema = json!({"type": "object", "properties": {
        "i": {"type": "integer"},
        "l": {"type": "array", "items": {"type": "integer"}}}});
    let value = json!({"i": 1.0, "l": [2, 1.0]});
    let why = "invalid data, expected int, got float64";
    for rule in [
        "self.i > 0",
        "has(self.i)",
        "self.l[1] == 1",
        "self.l.all(x, x > 0)",
        "1 in self.l",
        "self.l == [2, 1]",
    ] {
        let told = ran(&schema, &value, rule).0;
        assert_eq!(told, Err(Stop::Error(why.to_owned())), "{rule}");
    }
    for rule in [
        "true || self.i > 0",
        "size(self.l) == 2",
        "self.l[0] == 2",
        "2 in self.l",
        "self.l != [3, 1]",
    ] {
        assert_eq!(ran(&schema, &value, rule).0, Ok(Cel::Bool(true)), "{rule}");
    }
}
