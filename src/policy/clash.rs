//! How a policy names a proxy core.
//!
//! **Invariant:** a core is controlled over loopback or a unix socket and over nothing else.

use super::fault::PolicyFault;
use crate::setting::{Control, Core, Source};
use crate::url::Target;
use std::path::{Path, PathBuf};

/// Where a core listens for control: `http://127.0.0.1:9090` or `unix:///run/core.sock`.
///
/// # Errors
/// What `key` must say instead.
pub(super) fn control(key: &str, text: &str) -> Result<Control, PolicyFault> {
    let fault = |why: &str| {
        PolicyFault::new(format!(
            "{key} {why}: write http://127.0.0.1:PORT, or unix:///PATH for a unix socket"
        ))
    };
    if let Some(path) = text.strip_prefix("unix://") {
        return if path.starts_with('/') {
            Ok(Control::Unix(PathBuf::from(path)))
        } else {
            Err(fault("names no absolute path"))
        };
    }
    let url =
        Target::try_from(text.to_owned()).map_err(|why| fault(&format!("is no URL ({why})")))?;
    let is_here = url.host() == "localhost" || url.address().is_some_and(|at| at.is_loopback());
    if !is_here {
        return Err(fault(
            "leaves this machine, and whoever reaches a core's control can steer it",
        ));
    }
    if url.is_https() || url.path() != "/" {
        return Err(fault("is not the beginning of a core's API over plain HTTP"));
    }
    Ok(Control::Http(url))
}

/// A core as a policy's driver names it.
///
/// # Errors
/// Which key must say something else.
pub(super) fn core(keys: &str, url: &str, secret_file: Option<&Path>) -> Result<Core, PolicyFault> {
    let control = control(&format!("{keys}.url"), url)?;
    Ok(Core { control, secret_file: secret(keys, secret_file)?, secret_in: None })
}

/// A core of which a policy's driver names some, and the rest is found at `source`.
///
/// # Errors
/// Which key must say something else.
pub(super) fn found(
    keys: &str,
    url: Option<&str>,
    secret_file: Option<&Path>,
    source: &Source,
) -> Result<Core, PolicyFault> {
    let control = match url {
        Some(url) => control(&format!("{keys}.url"), url)?,
        None => Control::Found(source.clone()),
    };
    let secret_file = secret(keys, secret_file)?;
    let secret_in = secret_file.is_none().then(|| source.clone());
    Ok(Core { control, secret_file, secret_in })
}

fn secret(keys: &str, secret_file: Option<&Path>) -> Result<Option<PathBuf>, PolicyFault> {
    if secret_file.is_some_and(|path| !path.is_absolute()) {
        return Err(PolicyFault::new(format!(
            "{keys}.secret_file is no absolute path: write one that begins with /"
        )));
    }
    Ok(secret_file.map(Path::to_owned))
}
