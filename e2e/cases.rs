//! The tests, by subject.

mod api;
mod at_rest;
mod attack;
mod attack_isolation;
mod churn;
mod demo;
mod helm;
mod hub;
mod init_flags;
mod init_install;
mod init_policy;
mod lab;
mod network_agents;
mod network_clients;
mod pod;
mod real_node;
mod registration_errors;
mod registration_fire;
mod registration_rows;
mod relay;
mod serve;
mod serve_attack;
mod status;
mod works;
