//! Enums with labels are stored as their labels.

/// Implements serde for a type that `kernel::labels!` declared.
macro_rules! stored_as_label {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.label())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let label = String::deserialize(deserializer)?;
                let unknown = || serde::de::Error::custom(format!("unknown label `{label}`"));
                $name::parse(&label).ok_or_else(unknown)
            }
        }
    };
}

pub(crate) use stored_as_label;
