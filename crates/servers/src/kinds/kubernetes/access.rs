//! Who may talk to a cluster: its certificates, and a kubeconfig for each of its parts.

use std::path::PathBuf;

use anyhow::Result;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::Place;
use crate::pki::{Authority, For, key_pair};

/// File, name and group.
const CLIENTS: [(&str, &str, &str); 4] = [
    ("controllers", "system:kube-controller-manager", ""),
    ("scheduler", "system:kube-scheduler", ""),
    ("kwok", "kwok", "system:masters"),
    ("admin", "admin", "system:masters"),
];

pub fn kubeconfig(place: &Place, client: &str) -> PathBuf {
    place.dir.join(client).with_extension("kubeconfig")
}

/// Once for a place; its kubeconfigs stay valid after a restart.
pub fn create(place: &Place) -> Result<()> {
    // The last that is written.
    if kubeconfig(place, "admin").exists() {
        return Ok(());
    }
    let dir = place.sub("pki")?;
    let ca = Authority::create(&dir, "ca")?;
    let names = ["127.0.0.1", "localhost", "10.0.0.1", "kubernetes.default.svc"];
    ca.sign("api", "kube-apiserver", For::Server(&names))?;
    ca.sign("kubelet", "kwok", For::Server(&["127.0.0.1"]))?;
    Authority::create(&dir, "front-proxy")?;
    key_pair(&dir, "accounts")?;
    let read = |name: String| -> Result<String> {
        Ok(BASE64_STANDARD.encode(std::fs::read(dir.join(name))?))
    };
    for (file, name, group) in CLIENTS {
        ca.sign(file, name, For::Client { organisation: group })?;
        let text = format!(
            "apiVersion: v1\nkind: Config\n\
             clusters: [{{name: test, cluster: {{server: 'https://127.0.0.1:{port}', \
             certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: {file}, user: {{client-certificate-data: {certificate}, \
             client-key-data: {key}}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: {file}}}}}]\n\
             current-context: test\n",
            port = place.port("api")?,
            ca = read("ca.crt".into())?,
            certificate = read(format!("{file}.crt"))?,
            key = read(format!("{file}.key"))?,
        );
        std::fs::write(kubeconfig(place, file), text)?;
    }
    Ok(())
}
