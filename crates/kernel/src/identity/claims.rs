//! Maps verified claims to a principal.

use std::collections::BTreeSet;

use serde_json::Value;

use super::config::{AdminRoles, ClaimNames};
use super::principal::{ADMIN_ROLES, Principal};
use super::token::{Claims, refused};
use crate::Result;

/// The longest name: it goes into logs, indexes and headers.
const NAME_CHARS_MAX: usize = 255;

/// Maps the claims of one issuer.
pub struct ClaimMapper {
    pub names: ClaimNames,
    /// The prefix of subjects and organisations.
    pub prefix: String,
    /// `None` for the built-in issuer, which uses our role names.
    pub admin_roles: Option<AdminRoles>,
}

impl ClaimMapper {
    pub fn principal(&self, issuer: &str, claims: &Claims) -> Result<Principal> {
        let names = &self.names;
        let text = |name: &str| at_path(claims, name).and_then(Value::as_str).unwrap_or_default();
        let first = |options: [&str; 3]| {
            options.into_iter().map(text).find(|value| !value.is_empty()).unwrap_or_default()
        };
        let subject = first([&names.username, &names.username_fallback, "sub"]);
        if subject.is_empty() {
            return Err(refused(format!(
                "the token has no subject: it has none of `{}`, `{}` and `sub`",
                names.username, names.username_fallback
            )));
        }
        let org = first([&names.org, &names.org_fallback, ""]);
        let prefixed = |name: &str| match name {
            "" => String::new(),
            name => format!("{}{name}", self.prefix),
        };
        let client = self.client(claims).unwrap_or_default().to_owned();
        let account = text(&names.account).to_owned();
        let (subject, org) = (prefixed(subject), prefixed(org));
        for (what, name) in [
            ("subject", &subject),
            ("organisation", &org),
            ("client", &client),
            ("account", &account),
        ] {
            if name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
                return Err(refused(format!(
                    "the token's {what} has more than {NAME_CHARS_MAX} characters, or control characters"
                )));
            }
        }
        let roles = self.roles(at_path(claims, &names.roles));
        let agent_of = self.agent_of(text(&names.agent_cluster), text(&names.agent_client), &roles);
        Ok(Principal {
            subject,
            issuer: issuer.to_owned(),
            org,
            org_admin: match at_path(claims, &names.org_admin) {
                Some(Value::Bool(yes)) => *yes,
                Some(Value::String(text)) => text == "true",
                _ => false,
            },
            roles,
            agent_of,
            client,
            account,
        })
    }

    /// Programs have a claim that people's tokens lack. Newer Keycloaks call it `client_id`, which
    /// other issuers put into every token: there the user name decides.
    fn client<'a>(&self, claims: &'a Claims) -> Option<&'a str> {
        let text = |name: &str| at_path(claims, name).and_then(Value::as_str);
        let named = text(&self.names.agent_client).filter(|client| !client.is_empty());
        named.or_else(|| {
            let user = text("preferred_username")?.strip_prefix("service-account-")?;
            text("client_id").filter(|client| client.eq_ignore_ascii_case(user))
        })
    }

    /// Lower case. Another issuer's role maps to one of ours only through the configuration: one that
    /// happens to be called `admin-full` has no effect here.
    fn roles(&self, claimed: Option<&Value>) -> BTreeSet<String> {
        let claimed = match claimed {
            Some(Value::Array(many)) => many.as_slice(),
            _ => &[],
        };
        let mut roles: BTreeSet<String> =
            claimed.iter().filter_map(Value::as_str).map(str::to_lowercase).collect();
        if let Some(names) = &self.admin_roles {
            let granted: Vec<&str> = ADMIN_ROLES
                .into_iter()
                .zip([&names.read, &names.write, &names.full])
                .filter(|(_, names)| names.iter().any(|name| roles.contains(&name.to_lowercase())))
                .map(|(role, _)| role)
                .collect();
            roles.retain(|role| !ADMIN_ROLES.contains(&role.as_str()));
            roles.extend(granted.into_iter().map(str::to_owned));
        }
        roles
    }

    fn agent_of(&self, cluster: &str, client: &str, roles: &BTreeSet<String>) -> Option<String> {
        let names = &self.names;
        let by_role = (!cluster.is_empty() && roles.contains(&names.agent_role.to_lowercase()))
            .then_some(cluster);
        let by_client = || {
            let prefix = names.agent_client_prefix.as_str();
            (!prefix.is_empty()).then(|| client.strip_prefix(prefix)).flatten()
        };
        by_role.or_else(by_client).filter(|id| !id.is_empty()).map(str::to_owned)
    }
}

/// The claim of this exact name, or else the one at this dotted path.
fn at_path<'a>(claims: &'a Claims, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return None;
    }
    claims.get(path).or_else(|| {
        let (first, rest) = path.split_once('.')?;
        rest.split('.').try_fold(claims.get(first)?, |value, name| value.get(name))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(claims: Value) -> Result<Principal> {
        read_with("", claims)
    }

    fn read_with(prefix: &str, claims: Value) -> Result<Principal> {
        let (names, admin_roles) = (ClaimNames::default(), Some(AdminRoles::default()));
        let reader = ClaimMapper { names, prefix: prefix.into(), admin_roles };
        reader.principal("https://sso", claims.as_object().unwrap())
    }

    #[test]
    fn a_prefix_keeps_one_issuers_people_apart_from_anothers() {
        let claims = |org: &str| json!({"sub": "alice", "org_id": org});
        let ours = read(claims("acme")).unwrap();
        let theirs = read_with("partner:", claims("acme")).unwrap();
        assert_eq!(
            (theirs.subject.as_str(), theirs.org.as_str()),
            ("partner:alice", "partner:acme")
        );
        assert_ne!(ours.visibility(), theirs.visibility());
        let alone = read_with("partner:", claims("")).unwrap();
        assert_eq!(alone.org, "", "a token without an organisation gets none");
        assert_ne!(alone.visibility(), read(claims("")).unwrap().visibility());
    }

    fn roles(claimed: &[&str]) -> Vec<String> {
        let claims = json!({"sub": "s", "realm_access": {"roles": claimed}});
        read(claims).unwrap().roles.into_iter().collect()
    }

    #[test]
    fn the_first_name_that_is_there_counts() {
        let who = |claims: Value| read(claims).map(|p| (p.subject, p.org)).ok();
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(
            who(
                json!({"username": "a", "preferred_username": "b", "sub": "c", "org_id": "1", "rh-org-id": "2"})
            ),
            pair("a", "1")
        );
        assert_eq!(
            who(json!({"preferred_username": "b", "sub": "c", "rh-org-id": "2"})),
            pair("b", "2")
        );
        assert_eq!(who(json!({"username": "", "sub": "c"})), pair("c", ""));
        assert_eq!(who(json!({"username": 7})), None);
        assert_eq!(who(json!({})), None);
    }

    #[test]
    fn a_name_that_could_do_harm_is_refused() {
        let long = "x".repeat(NAME_CHARS_MAX + 1);
        for bad in ["a\0b", "a\nb", "a\u{1b}[2J", long.as_str()] {
            let message = read(json!({"sub": bad})).unwrap_err().to_string();
            assert!(message.contains("the token's subject"), "{message}");
            assert!(read(json!({"sub": "s", "org_id": bad})).is_err(), "{bad:?}");
        }
        assert!(read(json!({"sub": "é".repeat(NAME_CHARS_MAX), "org_id": "👩‍🚀"})).is_ok());
    }

    #[test]
    fn admin_roles_come_only_from_the_configured_names_in_any_case() {
        assert_eq!(
            roles(&["KAS-Fleet-Manager-Admin-Full", "Other"]),
            ["admin-full", "kas-fleet-manager-admin-full", "other"]
        );
        assert_eq!(roles(&["admin-full", "ADMIN-WRITE", "admin-read"]), Vec::<String>::new());
        assert_eq!(roles(&["mainstay-admin-read"]), ["admin-read", "mainstay-admin-read"]);
    }

    #[test]
    fn an_agent_is_known_by_its_client_or_by_cluster_and_role_together() {
        let agent = |claims: Value| read(claims).unwrap().agent_of;
        assert_eq!(
            agent(json!({"sub": "s", "clientId": "kas-fleetshard-agent-c1"})),
            Some("c1".into())
        );
        assert_eq!(agent(json!({"sub": "s", "clientId": "kas-fleetshard-agent-"})), None);
        assert_eq!(agent(json!({"sub": "s", "clientId": "someone"})), None);
        let cluster = "kas-fleetshard-operator-cluster-id";
        assert_eq!(agent(json!({"sub": "s", cluster: "c2"})), None);
        assert_eq!(
            agent(
                json!({"sub": "s", cluster: "c2", "realm_access": {"roles": ["kas_fleetshard_operator"]}})
            ),
            Some("c2".into())
        );
    }

    #[test]
    fn a_program_is_known_by_its_client_and_people_have_none() {
        let client = |claims: Value| read(claims).unwrap().client;
        assert_eq!(client(json!({"sub": "s", "clientId": "srvc-1", "azp": "x"})), "srvc-1");
        let keycloak = |user: &str| {
            client(json!({"sub": "s", "preferred_username": user, "client_id": "Srvc-1"}))
        };
        assert_eq!(keycloak("service-account-srvc-1"), "Srvc-1");
        assert_eq!(keycloak("alice"), "");
        assert_eq!(keycloak("service-account-other"), "");
        assert_eq!(client(json!({"sub": "alice", "azp": "console"})), "");
        assert!(read(json!({"sub": "s", "clientId": "a\nb"})).is_err());
        assert_eq!(read(json!({"sub": "s", "account_id": "17"})).unwrap().account, "17");
    }

    #[test]
    fn an_org_admin_is_so_by_a_boolean_or_its_text() {
        let admin =
            |value: Value| read(json!({"sub": "s", "is_org_admin": value})).unwrap().org_admin;
        assert!(admin(json!(true)) && admin(json!("true")));
        assert!(!admin(json!(false)) && !admin(json!("yes")) && !admin(json!(1)));
    }

    #[test]
    fn a_claim_whose_name_has_dots_wins_over_the_path() {
        let claims = json!({"a.b": 1, "a": {"b": 2, "c": {"d": 3}}});
        let claims = claims.as_object().unwrap();
        assert_eq!(at_path(claims, "a.b"), Some(&json!(1)));
        assert_eq!(at_path(claims, "a.c.d"), Some(&json!(3)));
        assert_eq!(at_path(claims, "a.x.d"), None);
    }
}
