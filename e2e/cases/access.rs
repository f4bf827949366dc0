//! Reaching into members through the connection that their agents dialled: on the built-in hub by its own API server, on
//! kube-apiserver by the port of `towline-hub run`.

mod attacks;
mod clients;
mod constrained;
mod door;
mod ends;
mod fleet;
mod floods;
mod front;
mod gathered;
mod grants;
mod groups;
mod hostile;
mod karmadactl;
mod kubectl;
mod kubectls;
mod long;
mod many;
mod node;
mod oneself;
mod pods;
mod promote;
mod replicas;
mod rig;
mod service_accounts;
mod tunnels;
mod verbs;
mod watch;
