//! The client side: speaks to a server over its REST API, as the person of the context.

pub mod context;
pub mod oauth;
pub mod sse;

use std::path::PathBuf;
use std::time::Duration;

use kernel::{Ambient, Timestamp};
use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use crate::error::{Error, Result, class_of};
use crate::output::Format;
use crate::progress::with_progress;
use context::{Context, Contexts};

/// Which server, as whom, and how to print the response.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Server and output")]
pub struct ClientArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// What to print: a table for people, the rest for scripts; name is one key per line
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

/// Which server, and as whom.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Server and output")]
pub struct ServerArgs {
    /// The server's address [default: the context's, else http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", env = "MAINSTAY_SERVER", hide_env_values = true)]
    pub server: Option<String>,
    /// A bearer token [default: the context's]
    #[arg(long, value_name = "TOKEN", env = "MAINSTAY_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// A context that `mainstay login` wrote [default: the current one]
    #[arg(long, value_name = "NAME", env = "MAINSTAY_CONTEXT", hide_env_values = true)]
    pub context: Option<String>,
    /// Certificates to trust besides the system's, PEM
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

pub struct Client {
    http: reqwest::Client,
    server: Url,
    given_token: Option<String>,
    /// The context in use, unless its server is not the one that was asked for.
    context: Option<(String, Context)>,
    pub ambient: Ambient,
}

/// Longer than any long poll of the server's.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A token that expires sooner than this is refreshed first.
const TOKEN_LEFT_MIN: Duration = Duration::from_secs(30);

impl Client {
    pub fn new(args: &ClientArgs) -> Result<Client> {
        Client::of(&args.server)
    }

    pub fn of(args: &ServerArgs) -> Result<Client> {
        let contexts = match Contexts::usual_path() {
            Some(path) => Contexts::read(&path)?,
            None => Contexts::default(),
        };
        Client::with(args, &contexts)
    }

    pub fn with(args: &ServerArgs, contexts: &Contexts) -> Result<Client> {
        let mut context = contexts.pick(args.context.as_deref())?;
        let server = match (&args.server, &context) {
            (Some(server), _) => server_url(server)?,
            (None, Some((_, context))) => server_url(&context.server)?,
            (None, None) => server_url(&format!("http://{}", crate::config::LISTEN_DEFAULT))?,
        };
        // A token is only ever sent to its own server.
        context = context
            .filter(|(_, context)| server_url(&context.server).ok().as_ref() == Some(&server));
        // A user who can read the key of the server on this machine need not sign in to it.
        if context.is_none() && args.token.is_none() {
            context = crate::local::found(server.as_str()).map(|found| (String::new(), found));
        }
        let known = context.as_ref().and_then(|(_, context)| context.ca_file.clone());
        let http = http(args.ca_file.clone().or(known))?;
        Ok(Client {
            http,
            server,
            given_token: args.token.clone(),
            context,
            ambient: Ambient::system(),
        })
    }

    /// An address below the server's, with the pairs of its query that have a value.
    pub fn url(&self, path: &str, query: &[(&str, Option<String>)]) -> Url {
        let mut url = self.server.clone();
        url.set_path(&format!("{}{path}", self.server.path().trim_end_matches('/')));
        let given = query.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let given: Vec<(&str, &str)> = given.collect();
        if !given.is_empty() {
            url.query_pairs_mut().extend_pairs(given);
        }
        url
    }

    /// Sends a request, and shows progress if the response takes long.
    pub async fn get<T: DeserializeOwned>(&mut self, url: Url) -> Result<T> {
        let message = format!("waiting for {}", self.server);
        with_progress(&message, self.ask(url)).await
    }

    pub async fn ask<T: DeserializeOwned>(&mut self, url: Url) -> Result<T> {
        let response =
            self.send(Method::GET, url, Some(REQUEST_TIMEOUT), |request| request).await?;
        self.read(response).await
    }

    pub async fn post(&mut self, url: Url, body: Option<&Value>) -> Result<Value> {
        let with_body = |request: RequestBuilder| match body {
            Some(body) => request.json(body),
            None => request,
        };
        let message = format!("waiting for {}", self.server);
        let sent = self.send(Method::POST, url, Some(REQUEST_TIMEOUT), with_body);
        let response = with_progress(&message, sent).await?;
        let text = response.text().await.map_err(|e| self.unreachable(e))?;
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub async fn patch(&mut self, url: Url, body: &Value) -> Result<Value> {
        self.write(Method::PATCH, url, body).await
    }

    pub async fn put(&mut self, url: Url, body: &Value) -> Result<Value> {
        let message = format!("waiting for {}", self.server);
        with_progress(&message, self.write(Method::PUT, url, body)).await
    }

    async fn write(&mut self, method: Method, url: Url, body: &Value) -> Result<Value> {
        let with_body = |request: RequestBuilder| request.json(body);
        let response = self.send(method, url, Some(REQUEST_TIMEOUT), with_body).await?;
        self.read(response).await
    }

    pub async fn delete(&mut self, url: Url) -> Result<()> {
        self.send(Method::DELETE, url, Some(REQUEST_TIMEOUT), |request| request).await.map(drop)
    }

    /// Sends a request; an error response becomes an error.
    pub async fn send(
        &mut self,
        method: Method,
        url: Url,
        timeout: Option<Duration>,
        shape: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response> {
        let mut request = shape(self.http.request(method, url));
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        if let Some(token) = self.token().await? {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(error_response(response).await)
        }
    }

    /// Text first, then our types: raw JSON inside them must stay as the server wrote it.
    async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T> {
        let text = response.text().await.map_err(|e| self.unreachable(e))?;
        serde_json::from_str(&text).map_err(|e| self.bad_response(e.to_string()))
    }

    pub fn bad_response(&self, what: String) -> Error {
        Error::BadResponse { server: self.server.to_string(), what }
    }

    pub fn unreachable(&self, source: reqwest::Error) -> Error {
        Error::Unreachable { server: self.server.to_string(), source: source.without_url() }
    }

    /// A token that is valid for a while, if one can be had.
    async fn token(&mut self) -> Result<Option<String>> {
        if self.given_token.is_some() {
            return Ok(self.given_token.clone());
        }
        let now = self.ambient.now();
        let Some((name, context)) = &mut self.context else { return Ok(None) };
        let good = |until: Timestamp| until > now.plus(TOKEN_LEFT_MIN);
        if context.token.is_some() && context.token_until.is_none_or(good) {
            return Ok(context.token.clone());
        }
        if let Some(local) = &context.local {
            let token = local.token()?;
            context.token = Some(token.clone());
            context.token_until = Some(now.plus(crate::local::TOKEN_FOR));
            return Ok(Some(token));
        }
        let Some(refresh) = &context.refresh else { return Ok(context.token.clone()) };
        let grant = oauth::refresh(&self.http, refresh).await?;
        grant.store(context, now);
        save(name, context)?;
        Ok(context.token.clone())
    }
}

/// Stores refreshed tokens, and keeps the rest of the file as it is by now.
pub fn save(name: &str, context: &Context) -> Result<()> {
    let path = Contexts::path()?;
    let mut contexts = Contexts::read(&path)?;
    contexts.contexts.insert(name.into(), context.clone());
    contexts.write(&path)
}

pub fn http(ca_file: Option<PathBuf>) -> Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("mainstay/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(5));
    if let Some(path) = ca_file {
        let pem = std::fs::read(&path)
            .map_err(|e| Error::file(format!("{} cannot be read", path.display()), e))?;
        let invalid =
            |e: reqwest::Error| kernel::Error::invalid("ca-file", format!("must be PEM: {e}"));
        builder =
            builder.tls_certs_merge(reqwest::Certificate::from_pem_bundle(&pem).map_err(invalid)?);
    }
    builder.build().map_err(|e| kernel::Error::internal("the HTTP client", e).into())
}

pub fn server_url(text: &str) -> Result<Url> {
    let right = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    Url::parse(text).ok().filter(right).ok_or_else(|| {
        kernel::Error::invalid(
            "server",
            format!("`{text}` must be a URL such as http://127.0.0.1:8080"),
        )
        .into()
    })
}

/// `{"error": {"class", "code", "message", "field", "request_id"}}`, or whatever came instead.
async fn error_response(response: Response) -> Error {
    let status = response.status();
    let header =
        response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let body = response.text().await.unwrap_or_default();
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let field = |name: &str| body["error"][name].as_str().map(str::to_owned);
    // The compatible APIs have shapes of their own.
    let plain = |name: &str| body[name].as_str().map(str::to_owned);
    let coded = plain("reason").map(|reason| match plain("code") {
        Some(code) => format!("{reason} ({code})"),
        None => reason,
    });
    Error::Server {
        class: class_of(field("class").as_deref(), status.as_u16()),
        message: field("message")
            .or(coded)
            .or(plain("message"))
            .unwrap_or_else(|| format!("the server responded with {status}")),
        field: field("field"),
        request_id: field("request_id").or(plain("operation_id")).or(header),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn args(server: Option<&str>) -> ServerArgs {
        ServerArgs { server: server.map(str::to_owned), ..ServerArgs::default() }
    }

    fn contexts() -> Contexts {
        let context = Context {
            server: "http://one:1/base".into(),
            token: Some("secret".into()),
            ..Context::default()
        };
        Contexts { current: "one".into(), contexts: BTreeMap::from([("one".into(), context)]) }
    }

    #[tokio::test]
    async fn a_context_s_token_goes_to_its_own_server_only() {
        kernel::outbound::install_tls();
        let mut same = Client::with(&args(None), &contexts()).unwrap();
        assert_eq!(same.token().await.unwrap().as_deref(), Some("secret"));
        let mut other = Client::with(&args(Some("http://two:2")), &contexts()).unwrap();
        assert_eq!(other.token().await.unwrap(), None);
    }

    #[test]
    fn addresses_keep_the_server_s_base_path_and_encode_what_is_asked() {
        kernel::outbound::install_tls();
        let client = Client::with(&args(None), &contexts()).unwrap();
        let url = client.url("/api/v1/x", &[("q", Some("a&b c".into())), ("none", None)]);
        assert_eq!(url.as_str(), "http://one:1/base/api/v1/x?q=a%26b+c");
    }

    #[test]
    fn a_server_that_is_not_a_url_is_refused_with_an_example() {
        let message = server_url("localhost:8080").unwrap_err().to_string();
        assert!(message.contains("http://127.0.0.1:8080"), "{message}");
    }
}
