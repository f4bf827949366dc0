//! Scripts that want to keep, fill or break the process that runs them. All end by counting; none by a clock.

use super::*;

const STEPS: &str = "it took more than the 200000 steps";
const BYTES: &str = "it made more than the 8388608 bytes";

#[test]
fn a_loop_without_end_is_stopped() {
    for script in [
        "while true do end",
        "repeat until false",
        "for i = 1, math.huge do end",
        "for i = 1, 0, 0 do end",
        "local function g() return g end while g() do end",
        "for k in function() return 1 end do end",
        "for w in (''):gmatch('x*') do end while true do end",
    ] {
        fails(script, STEPS);
    }
}

#[test]
fn nobody_catches_the_end() {
    for script in [
        "while true do pcall(function() while true do end end) end",
        "pcall(function() pcall(function() while true do end end) while true do end end)",
        "xpcall(function() while true do end end, function() while true do end end)",
        "while true do xpcall(error, function() error('again') end) end",
        "while true do pcall(pcall, pcall, error) end",
        "local function g() pcall(g) while true do pcall(g) end end g()",
    ] {
        fails(script, STEPS);
    }
    fails(
        "pcall(function() local t = {} while true do t[#t + 1] = {} end end) return 1",
        "the script was stopped",
    );
}

#[test]
fn memory_is_bounded_whatever_it_is_asked_for() {
    for script in [
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} while true do t[{}] = 1 end",
        "local t = {} for i = 1, math.huge do t[i] = i end",
        "local fs = {} while true do fs[#fs + 1] = function() return fs end end",
        "local s = 'xxxxxxxxxxxxxxxx' for i = 1, 12 do s = s .. s end while true do s = s:upper() end",
        "local s = ('%99d'):format(1) local t = {} for i = 1, 9000 do t[i] = s end
         while true do table.concat(t) end",
        "local s = 'x' for i = 1, 15 do s = s .. s end while true do s:sub(1, -2) end",
        "while true do ('x'):rep(1000000) end",
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000000) .. #t end",
        "local s = ('a'):rep(1000) while true do s = s:gsub('a', s) end",
        "local s = ('a'):rep(100000) while true do s:gsub('a', '%0%0%0%0%0') end",
        "while true do ('%99d%99d%99d%99d%99d'):format(1, 2, 3, 4, 5) end",
        "local f f = function(...) return f('x', ...) end while true do pcall(f) end",
    ] {
        let error = body(script).expect_err(script);
        assert!(
            error.contains(BYTES) || error.contains(STEPS),
            "{script}: {error}"
        );
    }
}

#[test]
fn going_deep_ends_in_an_error() {
    for script in [
        "local function g() return 1 + g() end return g()",
        "local function g() g() end g()",
        "local t = {} t.f = function() return t.f() end t.f()",
        "local function g(n) table.sort({1, 2}, function() return g(n + 1) end) end g(1)",
        "local t = {} for i = 1, 7000 do t[i] = pcall end error((select(-1, pcall(unpack(t)))))",
        "local function g(s) for w in s:gmatch('.') do g(s) end end g('x')",
        "local function g(s) return s:gsub('.', g) end g('x')",
        "local function g(e) return xpcall(error, g, e) end g('x') error('stack overflow')",
    ] {
        let error = body(script).expect_err(script);
        assert!(
            error.contains("overflow") || error.contains("the script was stopped"),
            "{script}: {error}"
        );
    }
}

#[test]
fn text_that_is_nested_without_end_is_not_read() {
    let deep = [
        format!("x = {}1{}", "(".repeat(5000), ")".repeat(5000)),
        format!("x = {}", "{".repeat(5000)),
        format!("x = {}1", "- ".repeat(5000)),
        format!("x = {}1", "not ".repeat(5000)),
        format!("x = 1{}", " + 1".repeat(5000)),
        format!("x = 1{}", " .. 1".repeat(5000)),
        format!("x = f{}", "()".repeat(5000)),
        format!("x = a{}", ".b".repeat(5000)),
        format!("x = a{}", "[1]".repeat(5000)),
        format!("function a{}() end", ".b".repeat(5000)),
        "do ".repeat(5000),
        "function f() ".repeat(5000),
        "if x then ".repeat(5000),
        "repeat ".repeat(5000),
        format!("x = {}", "function() return ".repeat(5000)),
        format!("f{}", "{f".repeat(5000)),
    ];
    for script in &deep {
        let read = Program::compile(script).map(drop);
        assert!(read.is_err() || script.len() < 16_000, "{script}");
    }
    let many: String = (0..1000).map(|i| format!("local a{i} = f() ")).collect();
    assert!(Program::compile(&many).is_err());
    let long = "x = 1 ".repeat(100_000);
    assert!(Program::compile(&long).is_err());
}

/// The deepest that is read runs, and so does the deepest that is called, on a small stack.
#[test]
fn the_deepest_fits_a_small_stack() {
    let run = || {
        let deep = format!("return {}1{}", "(".repeat(80), ")".repeat(80));
        is(&deep, "1");
        let chain = format!("return 1{}", " + 1".repeat(150));
        is(&chain, "151");
        let expression = format!("return {}g(){}", "(1 + ".repeat(60), ")".repeat(60));
        let nested = format!("{} g() {}", "if true then ".repeat(80), "end ".repeat(80));
        for script in [
            format!("function g() {expression} end return g()"),
            format!("function g() {nested} end g()"),
            "local function g() return pcall(g) and error('x') or g() end g() error('x')"
                .to_owned(),
            "local function g() table.sort({1, 2, 3}, g) end g()".to_owned(),
            "local function g() return ('x'):gsub('x', g) end g()".to_owned(),
            "local function g() return pcall(string.gsub, 'x', 'x', g) end g() error('x')"
                .to_owned(),
        ] {
            assert!(body(&script).is_err(), "{script}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(1024 * 1024);
    thread.spawn(run).expect("starts").join().expect("fits");
}

#[test]
fn patterns_are_charged_for_every_step() {
    let long = "local s = 'a' for i = 1, 14 do s = s .. s end";
    for pattern in [
        "a*a*a*a*a*b",
        "(a*)*b",
        ".-.-.-.-.-b",
        "a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?b.-b.-b",
        "[%a%d_]*[%a%d_]*[%a%d_]*b",
        "%b().-.-.-%b()",
        "%f[b].-.-.-%f[b]b",
        "(.-)%1%1%1.-b",
    ] {
        for call in ["find", "match"] {
            let script = format!("{long} while true do s:{call}('{pattern}') end");
            fails(&script, STEPS);
        }
        fails(
            &format!("{long} while true do for w in s:gmatch('{pattern}') do end end"),
            STEPS,
        );
    }
    fails(
        "('x'):find(('a?'):rep(600))",
        "pattern of more than 1000 bytes",
    );
    fails("return ('a'):rep(5000):find(('a?'):rep(400) .. 'b')", "");
    fails(
        "local s = ('('):rep(900000) while true do s:find('%b()') end",
        STEPS,
    );
    fails(
        "local s = ('a'):rep(900000) while true do s:find('(a*)%1x') end",
        STEPS,
    );
    fails(
        "local s = ('a'):rep(900000) s:find(('a'):rep(450000) .. 'b', 1, true)",
        STEPS,
    );
    fails(
        "local s = ('a'):rep(900000) while true do s:find('b', 1, true) end",
        STEPS,
    );
    fails(
        "local s = ('a'):rep(900000) while true do s:gsub('[^b]*', '') end",
        "the script was stopped",
    );
    for pattern in ["%", "[a", "(", "%b", "%f", "[%", "%9", ")", "[^"] {
        let error = body(&format!("return ('aaa'):match('{pattern}')"));
        assert!(error.is_err(), "{pattern}: {error:?}");
    }
}

#[test]
fn long_arguments_are_refused_before_they_are_looked_at() {
    let long = "local s = 'x' for i = 1, 20 do s = s .. s end";
    for call in [
        "s:find('y')",
        "s:upper()",
        "string.format(s)",
        "table.concat({1, 2}, s)",
        "s:byte(1, 2)",
    ] {
        fails(
            &format!("{long} {call}"),
            "string of more than 1000000 bytes",
        );
    }
    for script in [
        "unpack({}, 1, 1e9)",
        "unpack({}, -1e300, 1e300)",
        "return unpack({}, 1e300, 1e300)",
        "('x'):byte(-1e300, 1e300) error('x')",
        "table.concat({}, '', 1, 1e18)",
        "table.concat({}, '', 1e300, 1e300)",
        "('x'):sub(-1e300, 1e300) error('x')",
        "string.format('%99999d', 1)",
        "string.format('%.99999f', 1)",
        "string.char(256)",
        "tonumber('1', 99)",
        "math.random(2, 1)",
        "os.date('%', 0)",
        "os.date('!%Y', 1e300)",
        "os.time({year = 1e300, month = 1, day = 1})",
        "local t = {} t[nil] = 1",
        "local t = {} t[0 / 0] = 1",
        "select(0)",
        "select(-5, 1)",
        "next({}, 'nothing')",
    ] {
        let result = body(script);
        let harmless = script.contains("unpack") && result.is_ok();
        assert!(result.is_err() || harmless, "{script}: {result:?}");
    }
}

#[test]
fn moving_the_whole_list_each_time_is_charged() {
    let list = "local t = {} for i = 1, 20000 do t[i] = i end";
    fails(
        &format!("{list} while true do table.insert(t, 1, 0) end"),
        STEPS,
    );
    fails(
        &format!("{list} while true do table.remove(t, 1) table.insert(t, 1, 0) end"),
        STEPS,
    );
    fails(&format!("{list} while true do table.sort(t) end"), STEPS);
    fails(
        &format!("{list} while true do table.sort(t, function() return true end) end"),
        STEPS,
    );
    fails(
        &format!("{list} while true do table.maxn(t) table.concat(t) end"),
        STEPS,
    );
    let sparse = "local t = {} for i = 1, 20000 do t['k' .. i] = i end for i = 1, 20000 do t['k' .. i] = nil end";
    fails(&format!("{sparse} while true do next(t) end"), STEPS);
    let words = "local a = 'a' for i = 1, 18 do a = a .. a end local b = a .. 'x' a = a .. 'y'";
    fails(
        &format!("{words} while true do local c = a == b or a < b end"),
        STEPS,
    );
}

#[test]
fn what_a_script_gives_is_bounded() {
    let export = |script: &str| {
        let machine = load(LIMITS, script).expect("runs");
        let values = called(&machine, Vec::new()).expect("runs");
        machine
            .export(&values[0], 65_536)
            .expect_err("is too much")
            .to_string()
    };
    for (script, want) in [
        (
            "function f() local t = {} t.t = t return t end",
            "nested more than",
        ),
        (
            "function f() local t = {} for i = 1, 200 do t = {t} end return t end",
            "nested more than",
        ),
        (
            "function f() local t = {1} for i = 1, 60 do t = {t, t} end return t end",
            "larger than 65536",
        ),
        (
            "function f() local s = 'x' for i = 1, 17 do s = s .. s end return {s} end",
            "larger than 65536",
        ),
        (
            "function f() local t = {} for i = 1, 12000 do t[i] = i end return t end",
            "larger than 65536",
        ),
        ("function f() return {print} end", "has a function"),
        (
            "function f() return {[true] = 1} end",
            "has a boolean as a key",
        ),
        ("function f() return {1 / 0} end", "not finite"),
    ] {
        let error = export(script);
        assert!(error.contains(want), "{script}: {error}");
    }
}

/// What a script gives is read when it has ended, and what it calls may be refused at the end: both are paid for.
#[test]
fn what_is_exported_is_charged() {
    let script = "function f() local t = {} for i = 1, 12000 do t[i] = 1e300 end return t end";
    for (limit, fits) in [(1_000_000, true), (65_536, false)] {
        let machine = load(LIMITS, script).expect("runs");
        let values = called(&machine, Vec::new()).expect("runs");
        let before = machine.steps();
        assert_eq!(machine.export(&values[0], limit).is_ok(), fits);
        assert!(machine.steps() - before > 4000.0, "{limit}");
    }
    let machine = load(LIMITS, "function f() return ('x'):rep(100) end").expect("runs");
    let values = called(&machine, Vec::new()).expect("runs");
    while machine.export(&values[0], 1000).is_ok() {}
    let error = machine.export(&values[0], 1000).expect_err("is too much");
    assert!(error.to_string().contains(STEPS), "{error}");
}

#[test]
fn a_time_is_charged_by_the_length_of_its_format() {
    fails("for i = 1, 300 do os.date(('%c'):rep(100), 0) end", STEPS);
}

#[test]
fn one_script_leaves_nothing_to_the_next() {
    let script = "seen = (seen or 0) + 1 string.upper = nil leak = leak and 'leaked' or true
         function f() local was = seen seen = 99 math.floor = nil _G.print = nil return was, leak, string.upper == nil end";
    for _ in 0..3 {
        assert_eq!(run_with(LIMITS, script).as_deref(), Ok("1 true true"));
    }
    is("return ('x'):upper() .. math.floor(1.5)", "X1");
    for hidden in [
        "io",
        "debug",
        "coroutine",
        "package",
        "arg",
        "buffer",
        "bit32",
        "utf8",
        "vector",
        "os.clock",
        "os.execute",
        "string.split",
        "table.freeze",
        "_G._G.io",
        "typeof",
    ] {
        is(&format!("return {hidden}"), "nil");
    }
}

#[test]
fn the_same_call_takes_the_same_steps() {
    let script = "function f() local t = {} for i = 1, 500 do t['k' .. i] = math.random() end
        local s = '' for k, v in pairs(t) do s = s .. k .. v end return s end";
    let first = run_with(LIMITS, script).expect("runs");
    for _ in 0..5 {
        assert_eq!(run_with(LIMITS, script).as_deref(), Ok(first.as_str()));
    }
    let steps = || {
        let machine = load(LIMITS, script).expect("runs");
        called(&machine, Vec::new()).expect("runs");
        machine.steps()
    };
    let once = steps();
    assert!(once > 500.0);
    assert_eq!(steps().total_cmp(&once), std::cmp::Ordering::Equal);
    let short = Limits {
        steps: 500,
        ..LIMITS
    };
    assert!(run_with(short, script).is_err());
}

#[test]
fn what_a_script_throws_is_told_harmlessly() {
    for (script, want) in [
        ("error({})", "the script raised a table instead of a text"),
        (
            "error(print)",
            "the script raised a function instead of a text",
        ),
        ("error()", "the script raised a nil instead of a text"),
        ("error(12)", "12"),
        (
            "error('a\\27[2J\\nb\\226\\128\\174c', 0)",
            "a\\u{1b}[2J b\\u{202e}c",
        ),
        (
            "error({__tostring = function() while true do end end})",
            "the script raised a table",
        ),
    ] {
        fails(script, want);
    }
    let long = body("error(('x'):rep(100000), 0)").expect_err("fails");
    assert_eq!(long.chars().count(), 2048);
    is("local ok, e = pcall(error, {a = 1}) return e.a", "1");
    is("local ok, e = pcall(os.time) return type(e)", "string");
    is(
        "return tostring({}), tostring(print), ('%s'):format({})",
        "table function table",
    );
}
