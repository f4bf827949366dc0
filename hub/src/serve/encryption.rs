//! `towline-hub encryption`: the keys by which a hub encrypts what it keeps.

use super::beside::Beside;
use crate::apiserver::keys::seal_all;
use crate::apiserver::sealing::Keyring;
use crate::apiserver::store::OpenError;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What `towline-hub encryption` does.
#[derive(Debug, Subcommand)]
pub enum Encryption {
    /// Make a new key, encrypt everything by it, and drop the old one; the hub must not run meanwhile
    Rotate(EncryptionArgs),
    /// Show which key file is used and what the keys in it are called, never the keys themselves
    Status(EncryptionArgs),
    /// Print the key file with the keys themselves, for a copy of it elsewhere: with it and a backup anybody can be
    /// this hub
    Export(EncryptionArgs),
}

/// Flags of `towline-hub encryption`.
#[derive(Debug, Args)]
pub struct EncryptionArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
}

/// Shows which keys there are.
pub fn status(args: &EncryptionArgs) -> anyhow::Result<String> {
    let ring = ring(&Beside::open(&args.data_dir)?)?;
    let mut ids = ring.ids().into_iter();
    let first = ids.next().map(|id| id.to_string()).unwrap_or_default();
    let mut said = format!("{}\n  {first}  encrypts", ring.file().display());
    for id in ids {
        said.push_str(&format!("\n  {id}  decrypts what is left of before"));
    }
    Ok(said)
}

/// The key file, as it can lie elsewhere.
pub fn export(args: &EncryptionArgs) -> anyhow::Result<String> {
    Ok(ring(&Beside::open(&args.data_dir)?)?.export())
}

fn ring(beside: &Beside) -> anyhow::Result<Keyring> {
    let file = Keyring::place(beside.dir());
    let ring = Keyring::read(&file)?;
    ring.with_context(|| {
        format!(
            "there is no encryption key file {}: a hub makes it at its first start",
            file.display()
        )
    })
}

/// Replaces the key. Cut short, it is completed by the next call: both keys are in the file until
/// nothing is left of the old one.
pub async fn rotate(args: &EncryptionArgs) -> anyhow::Result<String> {
    let beside = Beside::open(&args.data_dir)?;
    let _alone = beside.lock_keys()?;
    ring(&beside)?;
    // Nothing is changed beside a hub that runs, and nothing is added to what is not whole yet.
    encrypt(&beside).await?;
    // What is in the file now: it may have been changed by hand until the store was opened by it.
    let ring = ring(&beside)?;
    let ring = match ring.ids().len() {
        1 => ring.with_new_key()?,
        _ => ring,
    };
    encrypt(&beside).await?;
    seal_all(&beside.keys())?;
    let kept = ring.without_old_keys()?;
    let kept: Vec<String> = kept.iter().map(|file| file.display().to_string()).collect();
    Ok(format!(
        "Everything is encrypted by the new key {}, in {}. Keep a copy of it apart from the data and its backups.\n\
         Backups of before need the old key: {}. Keep it where the copies are, and delete it here.",
        ring.first(),
        ring.file().display(),
        kept.join(", ")
    ))
}

/// Opening the store encrypts everything in it by the first key.
async fn encrypt(beside: &Beside) -> anyhow::Result<()> {
    match beside.store().await {
        Ok(store) => {
            store.close().await;
            Ok(())
        }
        Err(error @ OpenError::Locked { .. }) => Err(error).context(
            "the hub runs: stop it for as long as this takes, seconds as a rule; agents go on",
        ),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::keys::FOLDER;
    use serde_json::Value;
    use std::fs;
    use std::path::Path;

    fn in_tree(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        fs::read_to_string(root.join(path)).expect("readable")
    }

    #[test]
    fn the_key_is_printed_by_the_command_that_is_for_that_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let args = EncryptionArgs {
            data_dir: dir.path().to_owned(),
        };
        export(&args).expect_err("no data directory");
        fs::create_dir(dir.path().join(FOLDER)).expect("made");
        export(&args).expect_err("no key");
        let place = Keyring::place(dir.path());
        let ring = Keyring::create(&place).expect("made");
        let file = fs::read_to_string(&place).expect("there");
        assert_eq!(export(&args).expect("printed"), file);
        let key = file.lines().last().expect("a key");
        let shown = status(&args).expect("shown");
        assert!(shown.contains(&ring.first().to_string()), "{shown}");
        assert!(!shown.contains(key), "{shown}");
    }

    #[test]
    fn a_hub_in_a_pod_takes_the_key_that_the_guide_makes() {
        let manifest = in_tree("manifests/hub/built-in/statefulset.yaml");
        let parts = manifest.split("\n---\n");
        let mut parts = parts.map(|it| serde_yaml::from_str::<Value>(it).expect("YAML"));
        let set = parts.find(|it| it["kind"] == "StatefulSet");
        let pod = &set.expect("a StatefulSet")["spec"]["template"]["spec"];
        let named = |list: &Value, name: &str| {
            let list = list.as_array().expect("a list");
            let found = list.iter().find(|it| it["name"] == name);
            found.expect(name).clone()
        };
        let hub = named(&pod["containers"], "hub");
        let file = named(&hub["env"], "TOWLINE_HUB_ENCRYPTION_KEY_FILE");
        let folder = named(&hub["volumeMounts"], "key");
        let secret = named(&pod["volumes"], "key");
        let file = Path::new(file["value"].as_str().expect("a path"));
        let folder = Path::new(folder["mountPath"].as_str().expect("a path"));
        assert_eq!(file.parent(), Some(folder));
        let name = file.file_name().expect("a name").to_string_lossy();
        let secret = secret["secret"]["secretName"].as_str().expect("a Secret");
        let guide = in_tree("docs/install.md");
        for line in [
            format!("echo \"aes256gcm:$(openssl rand -base64 32)\" >{name}\n"),
            format!("create secret generic {secret} --from-file={name}\n"),
        ] {
            assert!(guide.contains(&line), "{line}");
        }
        // 32 bytes, as openssl writes them.
        let dir = tempfile::tempdir().expect("a folder");
        let made = dir.path().join("hub.key");
        let line = format!("aes256gcm:{}=\n", "A".repeat(43));
        fs::write(&made, line).expect("written");
        assert!(Keyring::read(&made).expect("keys").is_some());
    }
}
