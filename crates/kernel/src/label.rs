//! Enums whose values have labels: phases, verbs, results.

/// A value that is stored or shown as its label.
pub trait Label: Sized {
    fn label(&self) -> &str;
    fn parse(label: &str) -> Option<Self>;
}

/// For what others define, such as the phases of objects of another system.
impl Label for String {
    fn label(&self) -> &str {
        self
    }

    fn parse(label: &str) -> Option<String> {
        Some(label.into())
    }
}

/// Declares an enum with the labels of its values.
#[macro_export]
macro_rules! labels {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$of:meta])* $value:ident = $label:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name { $($(#[$of])* $value),+ }

        impl $name {
            pub const ALL: [$name; [$($label),+].len()] = [$($name::$value),+];

            pub fn label(self) -> &'static str {
                match self { $($name::$value => $label),+ }
            }

            pub fn parse(label: &str) -> Option<$name> {
                $name::ALL.into_iter().find(|value| value.label() == label)
            }
        }

        impl $crate::label::Label for $name {
            fn label(&self) -> &str {
                $name::label(*self)
            }

            fn parse(label: &str) -> Option<$name> {
                $name::parse(label)
            }
        }
    };
}
