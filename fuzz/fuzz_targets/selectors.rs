//! Label and field selectors as a query has them.
#![no_main]

use hub::apiserver::request::{FieldSelector, LabelSelector, ListOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(selector) = LabelSelector::parse(text) {
        let none = selector.matches(|_| None);
        // Who selects everything selects what has no labels.
        assert!(none || !selector.is_empty());
        let _ = selector.matches(|_| Some("a"));
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        assert!(selector.matches(|_| String::new()) || !selector.is_empty());
        for name in selector.fields() {
            let _ = selector.exact(name);
        }
    }
    if let Ok(selector) = serde_json::from_str(text) {
        let _ = LabelSelector::of_object(&selector);
    }
    let query: Vec<(String, String)> = text
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let _ = ListOptions::parse(&query);
});
