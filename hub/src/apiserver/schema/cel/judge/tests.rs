use super::*;
use serde_json::json;

fn judged(schema: &Value, rule: &str) -> Result<Judged, String> {
    Scope::of(schema, false)
        .expect("a schema")
        .judge(rule, false)
}

fn cost(schema: &Value, rule: &str) -> u64 {
    judged(schema, rule).map_or_else(|why| panic!("{rule}: {why}"), |found| found.cost)
}

/// The same schema twice: as it is, and with this bound at its root.
fn bounded(schema: &Value, key: &str, most: u64) -> Value {
    let mut bounded = schema.clone();
    bounded[key] = json!(most);
    bounded
}

/// A kind of values, a rule over a list, a map or one of them, a bound, and the costs without and with it.
type Row<'a> = (&'a str, &'a str, u64, u64, u64);

fn of_kind(kind: &str) -> Value {
    match kind {
        "int-or-string" => json!({"x-kubernetes-int-or-string": true}),
        "duration" | "date" | "date-time" | "byte" => json!({"type": "string", "format": kind}),
        "numbers" => json!({"type": "array", "items": {"type": "number"}}),
        "object" => json!({"type": "object", "required": ["required"], "properties":
            {"required": {"type": "string"}, "optional": {"type": "string"}}}),
        other => json!({"type": other}),
    }
}

fn holds(rows: &[Row<'_>], schema: impl Fn(Value) -> Value, key: &str) {
    for (kind, rule, most, free, set) in rows {
        let schema = schema(of_kind(kind));
        assert_eq!(cost(&schema, rule), *free, "{kind}: {rule}");
        let schema = bounded(&schema, key, *most);
        assert_eq!(cost(&schema, rule), *set, "{kind}, bounded: {rule}");
    }
}

#[test]
fn lists_cost_what_they_cost_on_a_real_server() {
    let rows = [
        ("number", "self.all(x, true)", 10, 4_718_591, 32),
        ("string", "self.all(x, true)", 20, 3_145_727, 62),
        ("boolean", "self.all(x, true)", 5, 1_887_437, 17),
        ("numbers", "self.all(x, true)", 100, 3_145_727, 302),
        ("object", "self.all(x, true)", 50, 555_128, 152),
        ("number", "self[1] == 0.0", 5000, 2, 2),
        ("string", "self[1] == self[1]", 8, 314_577, 314_577),
        (
            "number",
            "self.all(x, x == 0.0)",
            6_291_456,
            6_291_454,
            25_165_826,
        ),
        ("int-or-string", "self.all(x, true)", 10, 4_718_591, 32),
        ("int-or-string", "self[0] == 5", 10, 3, 3),
        ("boolean", "self[0] == false", 25, 2, 2),
        ("object", "self[0] == null", 422, 2, 2),
        ("numbers", "self[0][0] == -1.0", 51, 3, 3),
        ("duration", "self.all(x, true)", 5, 2_359_295, 17),
        ("duration", "self[0].getHours() == 2", 525, 4, 4),
        ("date", "self.all(x, true)", 15, 725_936, 47),
        ("date", "self[2].getDayOfMonth() == 13", 42, 4, 4),
        ("date-time", "self.all(x, true)", 25, 428_963, 77),
        ("date-time", "self[2].getMinutes() == 45", 99, 4, 4),
    ];
    holds(
        &rows,
        |of| json!({"type": "array", "items": of}),
        "maxItems",
    );
    let numbers = json!({"type": "array", "maxItems": 10, "items": {"type": "number"}});
    assert_eq!(cost(&numbers, "self.all(x, self.all(y, true))"), 352);
    let deep = "self.all(x, self.all(y, self.all(z, true)))";
    assert_eq!(cost(&numbers, deep), 3552);
}

#[test]
fn maps_cost_what_they_cost_on_a_real_server() {
    let rows = [
        ("number", "self.all(x, true)", 10, 1_348_169, 32),
        ("string", "self.all(x, true)", 3, 1_179_647, 11),
        ("boolean", "self.all(x, true)", 100, 943_718, 302),
        ("number", "self['x'] == 0.0", 0, 2, 2),
        ("numbers", "self.all(x, true)", 25, 1_179_647, 77),
        ("duration", "self.all(x, true)", 5, 1_048_577, 17),
        ("date", "self.all(x, true)", 10, 524_288, 32),
        ("date-time", "self.all(x, true)", 25, 349_526, 77),
        ("integer", "oldSelf.size() == self.size()", 10, 5, 5),
        ("date-time", "self['a'] == self['b']", 7, 8, 8),
        ("duration", "self['c'] == self['d']", 42, 8, 8),
    ];
    holds(
        &rows,
        |of| json!({"type": "object", "additionalProperties": of}),
        "maxProperties",
    );
}

#[test]
fn texts_cost_what_they_cost_on_a_real_server() {
    let rows = [
        ("string", "self.contains('test')", 10, 314_574, 5),
        ("string", "self.startsWith('test')", 15, 2, 2),
        ("string", "self.endsWith('test')", 30, 2, 2),
        (
            "string",
            "size(self + 'hello') > size('hello')",
            4,
            314_578,
            7,
        ),
        ("string", "self.matches('x')", 50, 314_574, 22),
        (
            "string",
            "''.matches('(((((((((())))))))))[0-9]')",
            10,
            7,
            7,
        ),
        ("string", "self.matches('')", 100, 1, 1),
        ("string", "self == 'x'", 0, 2, 1),
        ("byte", "self == b'x'", 0, 2, 1),
        ("string", "self.find('[0-9]+') == ''", 10, 629_147, 11),
        ("string", "self.lowerAscii() == 'lower!'", 10, 314_575, 6),
        ("int-or-string", "isQuantity(self)", 20, 314_574, 9),
    ];
    holds(&rows, |of| of, "maxLength");
    let letters = json!({"type": "string", "enum": ["A", "B", "C", "LongValue"]});
    assert_eq!(cost(&letters, "self.contains('A')"), 2);
    let list = |most: Option<u64>| {
        let mut list = json!({"type": "array", "items": {"type": "string"}});
        if let Some(most) = most {
            list["maxItems"] = json!(most);
            list["items"]["maxLength"] = json!(most);
        }
        list
    };
    for (rule, free, set) in [
        ("self.join(' ') == 'aa bb'", 329_853_068_905, 43),
        ("self.isSorted() == true", 329_854_432_052, 52),
    ] {
        assert_eq!(cost(&list(None), rule), free, "{rule}");
        assert_eq!(cost(&list(Some(10)), rule), set, "{rule}");
    }
    let object = |most: Option<u64>| {
        let mut text = json!({"type": "string"});
        if let Some(most) = most {
            text["maxLength"] = json!(most);
        }
        json!({"type": "object", "properties": {"str": text, "separator": text,
            "before": {"type": "string", "maxLength": 2},
            "after": {"type": "string", "maxLength": 4}}})
    };
    for (rule, most, free, set) in [
        (
            "self.str.replace(self.before, self.after) == 'does not matter'",
            4,
            629_154,
            12,
        ),
        ("self.str.split(self.separator) == []", 10, 629_160, 22),
    ] {
        assert_eq!(cost(&object(None), rule), free, "{rule}");
        assert_eq!(cost(&object(Some(most)), rule), set, "{rule}");
    }
    let map = |most: u64| {
        json!({"type": "object", "maxProperties": most,
               "additionalProperties": {"type": "string", "maxLength": most}})
    };
    assert_eq!(cost(&map(10), "self.all(x, x.contains(self[x]))"), 72);
}

fn everything() -> Value {
    json!({"type": "object", "properties": {
        "text": {"type": "string"}, "n": {"type": "integer"}, "d": {"type": "number"},
        "b": {"type": "boolean"}, "at": {"type": "string", "format": "date-time"},
        "for": {"type": "string", "format": "duration"}, "max-size": {"type": "integer"},
        "either": {"x-kubernetes-int-or-string": true},
        "list": {"type": "array", "items": {"type": "string"}},
        "objects": {"type": "array", "items": {"type": "object",
            "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
    }})
}

#[test]
fn what_people_write_makes_sense() {
    for rule in [
        "self.n <= 5 && self.d > 1.5 && !self.b",
        "self.n < self.d",
        "has(self.text) ? self.text.size() > 2 : true",
        "self.max__dash__size == 1 && self.for > duration('1h')",
        "self.namespace == '' || true",
        "self.at < timestamp('2020-01-01T00:00:00Z') && self.at.getFullYear() == 2020",
        "type(self.either) == string ? self.either.endsWith('%') : self.either > 5",
        "type(self.either) == int && int(self.either) >= 0",
        "self.list.all(x, x in ['a', 'b']) && 'a' in self.labels",
        "self.objects.exists_one(o, o.name == 'x' && o.port in [80, 443])",
        "self.objects.map(o, o.name).filter(n, n != '').size() < 3",
        "self.objects.all(i, o, o.port > i)",
        "self.labels.transformList(k, v, k + v).join(',').size() < 9",
        "self.labels.transformMap(k, v, v.size()).all(k, k != '')",
        "self.list.sortBy(x, x.size()) == self.list && self.list.isSorted()",
        "self.?text.orValue('none').matches('^[a-z]+$')",
        "self.?text.optMap(t, t.size()).orValue(0) == 0",
        "self.objects.all(o, self.objects.exists(p, p.name == o.name))",
        "quantity(self.text).isLessThan(quantity('1Gi')) && isQuantity(self.text)",
        "isURL(self.text) && url(self.text).getHost() == 'x'",
        "ip(self.text).family() == 4 && cidr('10.0.0.0/8').containsIP(self.text)",
        "!format.dns1123Label().validate(self.text).hasValue()",
        "sets.contains(self.list, ['a']) && self.list == oldSelf.list",
        "self == oldSelf && self.list.indexOf('x') == -1",
        "[1, 2, 3].sum() == 6 && [[1], [2]].flatten() == [1, 2]",
        "{'a': 1, 'b': 2}.all(k, k != 'c') && dyn(self.n) == 'x'",
        "'%s is %d'.format([self.text, self.n]) != ''",
        "self.objects.filter(o, o.port > 1).map(o, o.name + '!').exists(n, n == 'a!')",
        "has(self.labels.a) && self.labels['a'] == self.labels.a",
        "semver('1.2.3').major() == 1 && 1u == uint(1) && 0x10 == 16",
        r"self.text.matches(r'^\d+$') && self.text == '\u0041' && b'a' == b'\x61'",
        "lists.range(3).map(i, i * 2) == [0, 2, 4] && self.list.slice(0, 1).size() == 1",
        "string(self.n) == '1' && double(self.n) > 1.0 && self.n % 2 == 0 && -self.n < 0",
        "self.objects[0].name == 'a' && self.objects[?0].hasValue()",
    ] {
        match judged(&everything(), rule) {
            Ok(found) => assert!(found.is_bool(), "{rule}: {:?}", found.gives),
            // Fields that are not there are told; this one is.
            Err(why) => assert!(why.contains("undefined field 'namespace'"), "{rule}: {why}"),
        }
    }
}

#[test]
fn what_makes_no_sense_is_told_as_a_real_server_does() {
    for (rule, told) in [
        (
            "self.nothing == 1",
            "1:5: undefined field 'nothing'\n | self.nothing == 1\n | ....^",
        ),
        (
            "other == 1",
            "1:1: undeclared reference to 'other' (in container '')\n | other == 1\n | ^",
        ),
        (
            "self.text == 1",
            "1:11: found no matching overload for '_==_' applied to '(string, int)'\n | self.text == 1\n | ..........^",
        ),
        (
            "self.text.nothing()",
            "1:18: undeclared reference to 'nothing' (in container '')\n | self.text.nothing()\n | .................^",
        ),
        (
            "self.n.startsWith('a')",
            "1:18: found no matching overload for 'startsWith' applied to 'int.(string)'\n | self.n.startsWith('a')\n | .................^",
        ),
        (
            "self.n && true",
            "1:5: expected type 'bool' but found 'int'\n | self.n && true\n | ....^",
        ),
        (
            "self.text.all(x, true)",
            "1:5: expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)\n | self.text.all(x, true)\n | ....^",
        ),
        (
            "self.n.field == 1",
            "1:7: type 'int' does not support field selection\n | self.n.field == 1\n | ......^",
        ),
        (
            "[1, 'a'].size() == 2",
            "1:5: expected type 'int' but found 'string'\n | [1, 'a'].size() == 2\n | ....^",
        ),
        (
            "self.list.map(1, 2).size() == 1",
            "1:15: argument is not an identifier\n | self.list.map(1, 2).size() == 1\n | ..............^",
        ),
        (
            "duration('soon') == self.for",
            "1:10: invalid duration argument\n | duration('soon') == self.for\n | .........^",
        ),
        (
            "has(self)",
            "1:5: invalid argument to has() macro\n | has(self)\n | ....^",
        ),
    ] {
        let why = judged(&everything(), rule).err().unwrap_or_default();
        assert_eq!(why, format!("ERROR: <input>:{told}"), "{rule}");
    }
    let two = judged(&everything(), "self.a == 1 &&\n  self.b == 'ü'")
        .err()
        .unwrap_or_default();
    assert!(
        two.starts_with("ERROR: <input>:1:5: undefined field 'a'"),
        "{two}"
    );
    assert!(
        two.contains("applied to '(bool, string)'\n |   self.b == 'ü'"),
        "{two}"
    );
    assert!(!judged(&everything(), "self.text").expect("sense").is_bool());
    assert!(
        !judged(&everything(), "dyn(self.b)")
            .expect("sense")
            .is_bool()
    );
    assert!(
        judged(&everything(), "self == oldSelf")
            .expect("sense")
            .uses_old
    );
    let hidden = "self.list.all(oldSelf, oldSelf != '')";
    assert!(!judged(&everything(), hidden).expect("sense").uses_old);
}

#[test]
fn what_doubles_with_each_step_is_refused_soon() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let scope = Scope::of(&schema, false).expect("a schema");
    let judged = |text: &str| {
        scope
            .judge(text, false)
            .map(|_| ())
            .err()
            .unwrap_or_default()
    };
    let chain = format!("self.?a{}.hasValue()", ".optMap(x, x)".repeat(60));
    assert!(
        judged(&chain).contains("recursion limit"),
        "{}",
        judged(&chain)
    );
    let short = format!("self.?a{}.hasValue()", ".optMap(x, x)".repeat(6));
    assert_eq!(judged(&short), "");
    let maps = format!("[1]{}.size() == 1", ".map(a, {a: a})".repeat(60));
    assert!(
        judged(&maps).contains("type of a map is too large"),
        "{}",
        judged(&maps)
    );
    // Each of them is a map of twice the next one, which is known only later.
    let all: Vec<String> = (0..50)
        .map(|at| format!("a{at} == {{a{0}: a{0}}}", at + 1))
        .collect();
    let mut nested = all.join(" && ");
    for at in (0..51).rev() {
        nested = format!("[].all(a{at}, {nested})");
    }
    assert_eq!(judged(&nested), "");
    // A long row of types that are not known yet.
    let row = vec!["[]"; 5000].join("+") + " == []";
    assert!(judged(&row).contains("recursion limit"));
    let row = vec!["[] + [] == []"; 800].join(" && ");
    assert_eq!(judged(&row), "");
}
