use super::*;

mod hostile;

const LIMITS: Limits = Limits {
    steps: 200_000,
    bytes: 8 * 1024 * 1024,
};

fn load(limits: Limits, script: &str) -> Result<Machine, String> {
    let program = Program::compile(script).map_err(|error| error.to_string())?;
    let machine = Machine::new(limits, &[]).map_err(|error| error.to_string())?;
    machine.load(&program).map_err(|error| error.to_string())?;
    Ok(machine)
}

fn called(machine: &Machine, arguments: Vec<Value>) -> Result<Vec<Value>, RunError> {
    let Value::Function(function) = machine.global("f") else {
        panic!("no function f");
    };
    machine.run(&function, arguments)
}

fn run_with(limits: Limits, script: &str) -> Result<String, String> {
    let machine = load(limits, script)?;
    let values = called(&machine, Vec::new()).map_err(|error| error.to_string())?;
    let shown = |value: &Value| value.to_string().unwrap_or_default();
    Ok(values.iter().map(shown).collect::<Vec<_>>().join(" "))
}

/// What a function body returns, as text.
fn body(body: &str) -> Result<String, String> {
    run_with(LIMITS, &format!("function f(...) {body} end"))
}

fn is(script: &str, want: &str) {
    assert_eq!(body(script).as_deref(), Ok(want), "{script}");
}

fn fails(script: &str, want: &str) {
    let error = body(script).expect_err(script);
    assert!(error.contains(want), "{script}: {error}");
}

#[test]
fn operators_bind_and_convert_as_in_lua() {
    for (expression, want) in [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("2 ^ 3 ^ 2", "512"),
        ("-2 ^ 2", "-4"),
        ("7 / 2", "3.5"),
        ("4 / 2", "2"),
        ("-7 % 3", "2"),
        ("7 % -3", "-2"),
        ("'10' + 5", "15"),
        ("10 .. ''", "10"),
        ("1 .. 2 .. 3", "123"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("1e300 .. ''", "1e+300"),
        ("1 / 0", "inf"),
        ("0x10", "16"),
        ("1 < 2 and 'a' < 'b'", "true"),
        ("not nil == true", "true"),
        ("nil and 1 or 2", "2"),
        ("false ~= nil", "true"),
        ("#'abc' + #{1, 2}", "5"),
        ("1 == '1'", "false"),
        ("'a\\tb\\65\\'\"'", "a\tbA'\""),
        ("[[x\ny]]", "x\ny"),
        ("[==[ ]] ]==]", " ]] "),
    ] {
        is(&format!("return {expression}"), want);
    }
}

#[test]
fn statements_do_what_they_do_in_lua() {
    for (script, want) in [
        ("local a, b, c = 1, 2 return a, b, c", "1 2 nil"),
        ("local a, b = 1, 2 a, b = b, a return a, b", "2 1"),
        ("local t = {} t.x, t.y = 1 return t.x, t.y", "1 nil"),
        ("local s = 0 for i = 1, 10 do s = s + i end return s", "55"),
        (
            "local s = 0 for i = 10, 1, -3 do s = s + i end return s",
            "22",
        ),
        (
            "local s = '' for i, v in ipairs({'a', 'b', nil, 'd'}) do s = s .. i .. v end return s",
            "1a2b",
        ),
        (
            "local s = '' for k, v in pairs({9, 8}) do s = s .. k .. v end return s",
            "1928",
        ),
        (
            "local n = 0 while true do n = n + 1 if n > 4 then break end end return n",
            "5",
        ),
        (
            "local n = 0 repeat local m = n n = n + 1 until m == 3 return n",
            "4",
        ),
        (
            "if nil then return 1 elseif 0 then return 2 else return 3 end",
            "2",
        ),
        ("do local x = 1 end return x", "nil"),
        (
            "return select('#', nil, nil), select(2, 'a', 'b', 'c')",
            "2 b c",
        ),
        ("return (select(2, 'a', 'b', 'c'))", "b"),
        (
            "local t = {n = 1, [2] = 'b', 'a'} return t.n, t[1], t[2], #t",
            "1 a b 2",
        ),
        (
            "local function g(...) return ... end return g(1, 2), g(3, 4)",
            "1 3 4",
        ),
        (
            "local t = {f = function(self, x) return self.v + x end, v = 2} return t:f(3)",
            "5",
        ),
        (
            "local t = {a = {}} function t.a.f(x) return x end return t.a.f(4)",
            "4",
        ),
        ("return ('x'):upper() .. (\"%d\"):format(3)", "X3"),
        ("-- a comment\n--[[ another\n one ]] return 1; ", "1"),
    ] {
        is(script, want);
    }
}

#[test]
fn functions_share_the_variables_around_them() {
    is(
        "local n = 0 local function up() n = n + 1 return n end up() return up(), n",
        "2 2",
    );
    is(
        "local fs = {} for i = 1, 3 do fs[i] = function() i = i + 1 return i end end
         fs[1]() return fs[1](), fs[2](), fs[3]()",
        "3 3 4",
    );
    is(
        "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end return fib(15)",
        "610",
    );
    is(
        "local x = 1 local function a() local function b() x = x + 1 return x end return b() end a() return a()",
        "3",
    );
}

#[test]
fn tables_keep_what_they_are_given() {
    for (script, want) in [
        (
            "local t = {} t[3] = 'c' t[2] = 'b' t[1] = 'a' return #t, t[3]",
            "3 c",
        ),
        ("local t = {1, 2, 3} t[3] = nil t[2] = nil return #t", "1"),
        (
            "local t = {1, 2, 3} table.insert(t, 2, 9) return table.concat(t, ',')",
            "1,9,2,3",
        ),
        (
            "local t = {1, 2, 3} return table.remove(t, 1), table.remove(t), #t",
            "1 3 1",
        ),
        (
            "local t = {3, 1, 2} table.sort(t) return table.concat(t)",
            "123",
        ),
        (
            "local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return table.concat(t)",
            "321",
        ),
        (
            "local t = {a = 1, b = 2} for k in pairs(t) do t[k] = nil end return next(t)",
            "nil",
        ),
        (
            "local t = {1, 2, 3} for k in pairs(t) do t[k] = nil end return next(t)",
            "nil",
        ),
        (
            "local t = {} t[1.5] = 'x' t[true] = 'y' t[-0] = 'z' return t[1.5], t[true], t[0]",
            "x y z",
        ),
        ("return unpack({1, 2, 3}, 2)", "2 3"),
        ("return table.maxn({1, 2, [9] = 1})", "9"),
        ("return next({})", "nil"),
        (
            "local t = {} for i = 1, 20 do t['k' .. i] = i end t.k7 = nil return t.k6, t.k7, t.k20",
            "6 nil 20",
        ),
    ] {
        is(script, want);
    }
}

#[test]
fn strings_are_cut_found_and_formatted() {
    for (expression, want) in [
        ("('hello'):sub(2, -2)", "ell"),
        ("('hello'):sub(-3)", "llo"),
        ("('hello'):byte(1, 2)", "104 101"),
        ("string.char(72, 105)", "Hi"),
        ("('a.b'):find('.', 1, true)", "2 2"),
        ("('key=val'):match('(%w+)=(%w+)')", "key val"),
        ("('abc'):find('b()')", "2 2 3"),
        ("('  x '):match('^%s*(.-)%s*$')", "x"),
        ("('v1.22.3'):match('v(%d+)%.(%d+)')", "1 22"),
        ("('f(a(b)c)'):match('%b()')", "(a(b)c)"),
        ("('THE (q) fox'):find('%f[%a]%a+%f[%A]')", "1 3"),
        ("('aXbX'):match('[^X]+$')", "nil"),
        ("('x-y'):match('[a-z]%-[%w_]')", "x-y"),
        ("('ab'):rep(3)", "ababab"),
        ("('a b c'):gsub(' ', '-', 1)", "a-b c 1"),
        ("('abc'):gsub('%w', {a = 1})", "1bc 3"),
        ("('abab'):match('(ab)%1')", "ab"),
        ("('abc'):reverse():upper():len()", "3"),
        (
            "string.format('%5.2f|%-5s|%05d|%x|%q|%g|%%', 3.14159, 'ab', 42, 255, 'a\"b', 1e20)",
            " 3.14|ab   |00042|ff|\"a\\\"b\"|1e+20|%",
        ),
        ("string.format('%d%s', 3, {} ~= nil)", "3true"),
        (
            "tonumber('0x1F'), tonumber('z', 36), tonumber('1e1'), tonumber('x'), tonumber(' 5 ')",
            "31 35 10 nil 5",
        ),
        (
            "math.floor(3.7), math.max(1, 5, 2), math.huge, math.fmod(7, 3)",
            "3 5 inf 1",
        ),
        (
            "tostring(nil), tostring(true), tostring(3), type(print)",
            "nil true 3 function",
        ),
        (
            "os.time({year = 1970, month = 1, day = 2, hour = 0})",
            "86400",
        ),
        ("os.date('!%Y-%m-%d', 86400)", "1970-01-02"),
    ] {
        is(&format!("return {expression}"), want);
    }
    is(
        "local s = '' for w in ('one two'):gmatch('%a+') do s = s .. w .. ';' end return s",
        "one;two;",
    );
}

#[test]
fn errors_have_their_line_and_can_be_caught() {
    fails(
        "\n\nreturn obj.spec.x",
        "<string>:3: attempt to index nil with 'spec'",
    );
    fails(
        "return 1 + {}",
        "<string>:1: attempt to perform arithmetic (add) on number and table",
    );
    fails("return 1 < 'a'", "attempt to compare number < string");
    fails("nothing()", "attempt to call a nil value");
    fails("error('broken')", "<string>:1: broken");
    fails("error('bare', 0)", "bare");
    fails("error({})", "the script raised a table");
    for missing in [
        "getmetatable('')",
        "setmetatable({}, {})",
        "load('x')",
        "rawset({}, 1, 1)",
        "string.dump(print)",
    ] {
        fails(missing, "<string>:1: ");
        fails(missing, " is not available to these scripts");
    }
    fails("\nrequire('io')", "<string>:2: module io not found");
    fails("\nos.time()", "<string>:2: os.time needs a time here");
    fails(
        "\n('x'):rep({})",
        "<string>:2: invalid argument #2 to 'rep' (number expected, got table)",
    );
    fails(
        "\ntable.sort({3, 1}, function(a, b)\nreturn a.x end)",
        "<string>:3: attempt to index number with 'x'",
    );
    fails("('x'):gsub('[', '')", "<string>:1: malformed pattern");
    is("return pcall(error, 'x')", "false x");
    is(
        "local ok, e = pcall(function() error('y') end) return ok, e",
        "false <string>:1: y",
    );
    is("return pcall(function() return 1, 2 end)", "true 1 2");
    is(
        "return select(2, xpcall(function() error('z', 0) end, function(e) return e .. '!' end))",
        "z!",
    );
    is(
        "local ok = pcall(function() local x = nil; x.y = 1 end) return ok",
        "false",
    );
}

#[test]
fn what_cannot_be_read_is_told_with_its_line() {
    for (script, want) in [
        (
            "x = = 1",
            "<string>:1: Expected identifier when parsing expression, got '='",
        ),
        (
            "\nif x then",
            "<string>:2: Expected 'end' (to close 'then' at column 6), got <eof>",
        ),
        ("x = 'a\nb'", "<string>:1: Malformed string"),
        ("break", "<string>:1: "),
        ("\n\ngoto nowhere", "<string>:3: "),
        ("x = 1x", "Malformed number"),
        ("f() = 1", "<string>:1: "),
        (
            "x = function() return ... end",
            "Cannot use '...' outside of a vararg function",
        ),
        ("--[[ never ends", "<string>:1: "),
        ("x = \u{202e}\u{1b}[2J", "<string>:1: "),
    ] {
        let error = Program::compile(script).expect_err(script).to_string();
        assert!(error.contains(want), "{script}: {error}");
        assert!(!error.contains(['\u{202e}', '\u{1b}', '\n']), "{error}");
    }
}

#[test]
fn json_comes_back_as_it_went() {
    let original = serde_json::json!({"metadata": {"labels": {}, "finalizers": [], "name": "a"},
        "spec": {"replicas": 3, "weight": 1.5, "big": 9_007_199_254_740_993_i64, "list": [{"a": []}, 2, "x"], "on": true}});
    let machine = Machine::new(LIMITS, &[]).expect("made");
    let value = machine.import(&original).expect("fits");
    let mut back = machine.export(&value, 10_000).expect("is JSON");
    restore(&mut back, &[&original]);
    assert_eq!(back, original);
}

#[test]
fn what_a_script_leaves_empty_is_settled_by_what_was_there() {
    let script =
        "function f(o) return {spec = {a = {}, b = {}, c = {}, d = {{x = {}}}, e = nil}} end";
    let original = serde_json::json!({"spec": {"a": [], "b": {}, "d": [{"x": []}]}});
    let machine = load(LIMITS, script).expect("runs");
    let made = called(&machine, Vec::new()).expect("runs");
    let mut json = machine.export(&made[0], 10_000).expect("is JSON");
    restore(&mut json, &[&original]);
    assert_eq!(
        json,
        serde_json::json!({"spec": {"a": [], "b": {}, "d": [{"x": []}]}})
    );
}

/// A list stays one when the script takes something out of it or empties it; null items are not kept.
#[test]
fn a_list_with_holes_is_a_list() {
    let script = "function f(o) o.a[2] = nil o.b[1] = nil o.c.x = nil return o end";
    let machine = load(LIMITS, script).expect("runs");
    let given = serde_json::json!({"a": [1, 2, 3], "b": [1], "c": {"x": 1}, "d": [null, 4]});
    let given = machine.import(&given).expect("fits");
    let made = called(&machine, vec![given]).expect("runs");
    assert_eq!(
        machine.export(&made[0], 10_000),
        Ok(serde_json::json!({"a": [1, 3], "b": [], "c": {}, "d": [4]}))
    );
}
