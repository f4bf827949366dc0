//! The lab: real control planes on this machine, for the tests and for the command `e2e/lab`.
//!
//! A [`Plane`] is one control plane (etcd, kube-apiserver, kube-controller-manager, and on members
//! kube-scheduler and kwok's nodes). A [`Lab`] is a hub and its members. Everything a plane starts
//! dies with the program that started it, whatever way it ends.
#![allow(
    dead_code,
    unused_imports,
    reason = "the command and the tests each use a part of the lab"
)]

mod ask;
mod backup;
mod dirs;
mod enrol;
mod fleet;
mod image;
mod kubeconfig;
mod lab;
mod left_out;
mod middleman;
mod node;
mod nodes;
mod parts;
mod pki;
mod plane;
mod ports;
mod process;
mod registered;
mod relay;
mod sandbox;
mod seat;
mod shared;
mod towline;
mod wait;

pub(crate) use ask::{APPLY, Answer, JSON, JSON_PATCH, MERGE, ask};
pub(crate) use backup::Revisions;
pub(crate) use dirs::{Scratch, repository, target_dir};
pub(crate) use enrol::{Enrolled, Given, agent_config};
pub(crate) use fleet::{CLUSTER_READY_WITHIN, Fleet, http_get, start_hub};
pub(crate) use image::Image;
pub(crate) use kubeconfig::{client, write_private};
pub(crate) use lab::{Lab, LabOptions};
pub(crate) use left_out::left_out;
pub(crate) use middleman::Middleman;
pub(crate) use node::{PAUSE_IMAGE, RealNode};
pub(crate) use parts::{Part, Parts, Version};
pub(crate) use pki::{Identity, Pki};
pub(crate) use plane::{FRONT_PROXY, Plane, PlaneOptions};
pub(crate) use ports::{free_port, free_ports};
pub(crate) use process::{Process, ProcessSpec, Run, run};
pub(crate) use registered::{PreparedHub, Registered};
pub(crate) use relay::{ConnectProxy, Relay};
pub(crate) use sandbox::{GATEWAY, SERVICE, missing_for_a_real_node, remove_cgroups};
pub(crate) use seat::{Said, Seat, Wish};
pub(crate) use shared::{Member, Shared, shared};
pub(crate) use towline::{Towline, binary};
pub(crate) use wait::{wait_for, wait_for_some};
