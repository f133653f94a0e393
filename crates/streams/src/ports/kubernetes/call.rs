//! What the operator changes: objects are created, deleted and patched.

use http::Method;
use serde_json::{Value, json};

use super::Kubernetes;
use super::http::{Ask, Form};
use super::paths::Collection;
use super::read;
use crate::cluster::{Answer, Refused, What};
use crate::model::Place;
use crate::model::stream::MANAGER;

impl Kubernetes {
    pub async fn create(&self, what: &What, manifest: &Value) -> Result<Answer, Refused> {
        let namespace = manifest.pointer("/metadata/namespace").and_then(Value::as_str);
        let path = Collection::what(what)?.path(namespace);
        let path = format!("{path}?fieldManager={MANAGER}");
        let answer = self.ask(Ask::json(Method::POST, path, manifest)).await?;
        object(what, &answer)
    }

    pub async fn patch(
        &self,
        what: &What,
        place: &Place,
        patch: &Value,
        status: bool,
    ) -> Result<Answer, Refused> {
        let path = Collection::what(what)?.object(place);
        let part = if status { "/status" } else { "" };
        let answer = self.ask(Ask {
            method: Method::PATCH,
            path: format!("{path}{part}?fieldManager={MANAGER}"),
            body: Some(("application/merge-patch+json", patch.to_string().into_bytes())),
            form: Form::Whole,
        });
        object(what, &answer.await?)
    }

    pub async fn delete(
        &self,
        what: &What,
        place: &Place,
        uid: &str,
        foreground: bool,
    ) -> Result<Answer, Refused> {
        let path = Collection::what(what)?.object(place);
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid },
            "propagationPolicy": if foreground { "Foreground" } else { "Background" },
        });
        let answer = self.ask(Ask::json(Method::DELETE, path, &options)).await?;
        // The object, if it stays for a while, or a word that it has gone.
        match serde_json::from_slice::<Value>(&answer) {
            Ok(said) if said["kind"] == "Status" => Ok(Answer::Done),
            _ => object(what, &answer),
        }
    }
}

fn object(what: &What, answer: &[u8]) -> Result<Answer, Refused> {
    let unreadable = |error: String| Refused::Away(format!("an answer cannot be read: {error}"));
    let json = std::str::from_utf8(answer).map_err(|error| unreadable(error.to_string()))?;
    let object = read::answered(what, json).map_err(|error| unreadable(error.to_string()))?;
    Ok(object.map_or(Answer::Done, |object| Answer::Object(object.into())))
}
