//! What calls cost at the worst.

use super::range::Range;
use super::{LETTER, LIST, PATTERN, Reckoner};
use crate::apiserver::schema::cel::syntax::{Kind, Node};
use crate::apiserver::schema::cel::types::Type;

/// The longest of the formats that have names, and the longest pattern of one.
const LONGEST_FORMAT: u64 = 64;
const LONGEST_FORMAT_PATTERN: f64 = 128.0;
/// For asking whether somebody may do something.
const REVIEW: u64 = 350_000;
/// An address has so many bytes.
const ADDRESS: Range = Range { min: 4, max: 16 };

/// A call's cost without that of its arguments, and the size of what it gives.
type Cost = (Range, Option<Range>);

/// The parts of a call.
struct Call<'a> {
    function: &'a str,
    target: Option<&'a Node>,
    arguments: &'a [Node],
    costs: Vec<Range>,
}

impl Call<'_> {
    fn arguments_cost(&self) -> Range {
        let costs = self.costs.iter();
        costs.fold(Range::just(0), |sum, cost| sum + *cost)
    }
}

impl Reckoner<'_> {
    pub(super) fn call(&mut self, node: &Node) -> Range {
        let Kind::Call {
            target,
            function,
            arguments,
        } = &node.kind
        else {
            return Range::just(0);
        };
        if &**function == "dyn"
            && let [of] = arguments.as_slice()
        {
            let cost = self.node(of) + Range::just(1);
            let size = self.size(of);
            self.keep_size(node, size);
            if let Some(entries) = self.entries(of) {
                self.entries.insert(node.id, entries);
            }
            return cost;
        }
        let costs: Vec<Range> = arguments.iter().map(|one| self.node(one)).collect();
        let forms = self.checked.forms(node).to_vec();
        if forms.is_empty() {
            return Range::just(0);
        }
        let whole = self.checked.namespaced(node).cloned();
        let target = target.as_deref().filter(|_| whole.is_none());
        let on = target.map_or(Range::just(0), |target| self.node(target));
        let call = Call {
            function: whole.as_deref().unwrap_or(function),
            target,
            arguments,
            costs,
        };
        let mut cost = Range::EMPTY;
        let mut size = None;
        for form in forms {
            let (one, gives) = self.form(node, form, &call);
            cost = cost.union(one);
            size = match (size, gives) {
                (Some(a), Some(b)) => Some(Range::union(a, b)),
                (a, b) => a.or(b),
            };
            let step = match form {
                "index_list" => "@items",
                "index_map" => "@values",
                _ => "",
            };
            if let (false, Some(of)) = (step.is_empty(), arguments.first()) {
                size = self.entries(of).map(|entries| entries.value);
                let mut path = self.path(of);
                path.push(step.into());
                self.paths.insert(node.id, path);
            }
            if size.is_none() {
                size = self.size(node);
            }
        }
        self.keep_size(node, size);
        on + cost
    }

    fn form(&mut self, node: &Node, form: &str, call: &Call<'_>) -> Cost {
        if let Some((cost, size)) = self.of_lists(form, call) {
            return (cost + call.arguments_cost(), size);
        }
        if let Some((cost, size)) = self.of_kubernetes(form, call) {
            return (cost + call.arguments_cost(), size);
        }
        if let Some((cost, size)) = self.of_texts(form, call) {
            return (cost + call.arguments_cost(), size);
        }
        let both = match call.arguments {
            [a, b, ..] => (self.size_or_unknown(a), self.size_or_unknown(b)),
            _ => (Range::UNKNOWN, Range::UNKNOWN),
        };
        match (form, call.arguments) {
            ("logical_or" | "logical_and", [_, _]) => {
                let [left, right] = [call.costs[0], call.costs[1]];
                let cost = Range {
                    min: left.min,
                    max: (left + right).max,
                };
                (cost, None)
            }
            ("conditional", [_, yes, no]) => {
                let size = self.size_or_unknown(yes).union(self.size_or_unknown(no));
                self.join_entries(node, yes, no);
                let cost = call.costs[0] + call.costs[1].union(call.costs[2]);
                (cost, Some(size))
            }
            ("add_string" | "add_bytes" | "add_list", [left, right]) => {
                let size = both.0 + both.1;
                self.join_entries(node, left, right);
                let cost = match form {
                    "add_list" => Range::just(1),
                    _ => size.times(LETTER),
                };
                (cost + call.arguments_cost(), Some(size))
            }
            (form, [_, _]) if compares(form) => {
                let least = both.0.max.min(both.1.max);
                let cost = Range {
                    min: u64::from(least > 0),
                    max: least,
                };
                (cost.times(LETTER) + call.arguments_cost(), None)
            }
            _ => (Range::just(1) + call.arguments_cost(), None),
        }
    }

    fn join_entries(&mut self, node: &Node, left: &Node, right: &Node) {
        if let (Some(a), Some(b)) = (self.entries(left), self.entries(right)) {
            self.entries.insert(node.id, a.union(b));
        }
    }

    /// Texts, as CEL itself has them.
    fn of_texts(&mut self, form: &str, call: &Call<'_>) -> Option<Cost> {
        let first = call.arguments.first().map(|one| self.size_or_unknown(one));
        let target = call.target.map(|target| self.size_or_unknown(target));
        let walked = |size: Range| size.times(LETTER);
        Some(match (form, target, first) {
            ("string_format", Some(text), _) => (walked(text), None),
            ("string_to_bytes", _, Some(text)) => {
                let most = Range {
                    min: text.min,
                    max: text.max.wrapping_mul(4),
                };
                (walked(text), Some(most))
            }
            ("bytes_to_string", _, Some(bytes)) => {
                let least = Range {
                    min: bytes.min / 4,
                    max: bytes.max,
                };
                (walked(bytes), Some(least))
            }
            ("strings_quote", _, Some(text)) => {
                let most = Range {
                    min: text.min.wrapping_add(2),
                    max: text.max.wrapping_mul(2).wrapping_add(2),
                };
                (walked(text), Some(most))
            }
            ("starts_with_string" | "ends_with_string", _, Some(part)) => (walked(part), None),
            ("in_list", ..) => {
                let list = self.size_or_unknown(call.arguments.get(1)?);
                (list, None)
            }
            ("matches_string", Some(text), Some(pattern)) => (matched(text, pattern), None),
            ("contains_string", Some(text), Some(part)) => (walked(text) * walked(part), None),
            _ => return None,
        })
    }

    /// What Kubernetes adds, by the names of functions.
    fn of_kubernetes(&mut self, form: &str, call: &Call<'_>) -> Option<Cost> {
        let first = call.arguments.first().map(|one| self.size_or_unknown(one));
        let target = call.target.map(|target| self.size_or_unknown(target));
        let walked = |size: Range| size.times(LETTER);
        let one = Some((Range::just(1), None));
        let (cost, size) = match call.function {
            "check" => (Range::just(REVIEW), None),
            "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => {
                return one;
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let list = target?;
                match self.member_size(call.target?) {
                    Some((of, size)) => {
                        let text = matches!(of, Type::Text | Type::Bytes);
                        let each = if text { walked(size) } else { Range::just(0) };
                        (list * (Range::just(1) + each), None)
                    }
                    None => (walked(list), None),
                }
            }
            "url" => (walked(first?), first),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => (walked(target?), target),
            "replace" => {
                let (text, what) = (target?, first?);
                let with = self.size_or_unknown(call.arguments.get(1)?);
                (text.times(2.0 * LETTER), Some(replaced(text, what, with)))
            }
            "split" => {
                let text = target?;
                let pieces = match call.arguments.get(1).map(|limit| &limit.kind) {
                    Some(Kind::Int(limit)) => *limit as u64,
                    _ => text.max,
                };
                let size = Range {
                    min: 0,
                    max: pieces,
                };
                (text.times(2.0 * LETTER), Some(size))
            }
            "join" => {
                let size = self.joined(call, target?);
                (walked(size), Some(size))
            }
            "find" | "findAll" => {
                let text = target?;
                let size = Range {
                    min: 0,
                    max: text.max,
                };
                (matched(text, first?), Some(size))
            }
            "ip" if form == "cidr_ip" => return one,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
            | "isSemver" => (walked(first?), None),
            "ip.isCanonical" => (first?.times(2.0 * LETTER), None),
            "containsIP" | "containsCIDR" => {
                let mut cost = walked(ADDRESS + ADDRESS);
                if call.function == "containsCIDR" {
                    cost = cost + walked(ADDRESS) + Range::just(1);
                }
                if form.ends_with("_string") {
                    cost = cost + walked(first?);
                }
                (cost, None)
            }
            "validate" => {
                let cost = walked(first?).times(LONGEST_FORMAT_PATTERN * PATTERN);
                (cost, None)
            }
            "_==_" => return self.equal_objects(call),
            _ => return None,
        };
        Some((cost, size))
    }

    /// Objects of functions' own kinds are compared at a price of their own.
    fn equal_objects(&mut self, call: &Call<'_>) -> Option<Cost> {
        let [left, right] = call.arguments else {
            return None;
        };
        let of = self.checked.of(left);
        if of != self.checked.of(right) {
            return None;
        }
        let name = match of {
            Type::Object(name) => name,
            Type::Opaque(name, _) => name,
            _ => return None,
        };
        let cost = match name.as_ref() {
            "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => Range::just(1),
            "kubernetes.NamedFormat" => {
                let longest = Range {
                    min: 1,
                    max: LONGEST_FORMAT,
                };
                longest.times(LETTER)
            }
            "kubernetes.URL" => {
                let most = self.size(right).map_or(1, |size| size.max);
                Range { min: 1, max: most }.times(LETTER)
            }
            _ => return None,
        };
        Some((cost, None))
    }

    /// The type and size of a list's members; nothing for a text.
    fn member_size(&mut self, list: &Node) -> Option<(Type, Range)> {
        let of = match self.checked.of(list) {
            Type::List(of) => (**of).clone(),
            _ => return None,
        };
        let mut path = self.path(list);
        path.push("@items".into());
        let size = self.declared_size(&path).filter(|_| path.len() > 1);
        Some((of, size.unwrap_or(Range::UNKNOWN)))
    }

    fn joined(&mut self, call: &Call<'_>, list: Range) -> Range {
        let members = call.target.and_then(|list| self.member_size(list));
        let mut size = members.map_or(Range::just(0), |(_, size)| list * size);
        if let Some(between) = call.arguments.first() {
            let times = Range {
                min: list.min.saturating_sub(1),
                max: list.max.saturating_sub(1),
            };
            size = size + self.size_or_unknown(between) * times;
        }
        size
    }

    /// Functions that make lists, and those over sets.
    fn of_lists(&mut self, form: &str, call: &Call<'_>) -> Option<Cost> {
        let listed = |each: f64, size: Range| {
            let cost = size.times(each) + Range::just(1) + Range::just(LIST);
            Some((cost, Some(size)))
        };
        let whole = |node: Option<&Node>, default: u64| match node.map(|node| &node.kind) {
            Some(Kind::Int(number)) => u64::try_from(*number).unwrap_or(0),
            _ => default,
        };
        let target = call.target.map(|target| self.size_or_unknown(target));
        let arguments = call.arguments;
        match form {
            "list_slice" => {
                let start = whole(arguments.first(), 0);
                let end = whole(arguments.get(1), target?.max);
                listed(1.0, Range::just(end.wrapping_sub(start)))
            }
            "lists_range" => listed(1.0, Range::just(whole(arguments.first(), u64::MAX))),
            "list_reverse" => listed(1.0, target?),
            "list_flatten" => listed(1.0, target?),
            "list_flatten_int" => {
                let depth = whole(arguments.first(), u64::MAX);
                listed(depth as f64, target?)
            }
            "list_distinct" => listed(2.0, target? * target?),
            _ if form.ends_with("_sort") || form.ends_with("_sortByAssociatedKeys") => {
                let keys = match arguments.first() {
                    Some(keys) => self.size_or_unknown(keys),
                    None => target?,
                };
                let text = form.starts_with("list_string_") || form.starts_with("list_bytes_");
                let each = if text { 2.0 + LETTER } else { 2.0 };
                listed(each, keys * keys)
            }
            _ if form.starts_with("list_sets_") => {
                let [left, right] = arguments else {
                    return None;
                };
                let pairs = self.size_or_unknown(left) * self.size_or_unknown(right);
                let each = if form.contains("equivalent") {
                    2.0
                } else {
                    1.0
                };
                Some((pairs.times(each) + Range::just(1), None))
            }
            _ => None,
        }
    }
}

fn compares(form: &str) -> bool {
    let ordered = form.starts_with("less_") || form.starts_with("greater_");
    let walked = form.ends_with("_string") || form.ends_with("_bytes");
    matches!(form, "equals" | "not_equals") || (ordered && walked)
}

/// An empty text costs something too, for the pattern may.
fn matched(text: Range, pattern: Range) -> Range {
    (text + Range::just(1)).times(LETTER) * pattern.times(PATTERN)
}

/// How long a text is after `what` in it became `with`, at the least and at the most.
fn replaced(text: Range, what: Range, with: Range) -> Range {
    let fraction = |whole: u64, part: u64| whole.div_ceil(part);
    let (count_most, kept_most) = if what.min == 0 {
        // What replaces nothing stands around every letter.
        (text.max.saturating_add(1), text.max)
    } else if with.max <= what.min {
        (0, text.max)
    } else {
        (fraction(text.max, what.min), 0)
    };
    let (count_least, kept_least) = if what.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if what.max <= with.min {
        (0, text.min)
    } else {
        (fraction(text.min, what.max), 0)
    };
    let count = Range {
        min: count_least,
        max: count_most,
    };
    let kept = Range {
        min: kept_least,
        max: kept_most,
    };
    count * with + kept
}
