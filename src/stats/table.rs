//! Enums whose variants have a name and a meaning, from one table.

/// Declares such an enum, so that no name, help text or position is written twice.
macro_rules! named {
    (
        $(#[$meta:meta])*
        $enum:ident;
        $($variant:ident $name:literal $help:literal,)+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $enum {
            $(#[doc = concat!("`", $name, "`: ", $help, ".")] $variant,)+
        }

        impl $enum {
            /// All variants, in the order of the text form.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name in snake case, fit for a metrics system.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Meaning, in one line.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$variant => $help,)+
                }
            }
        }
    };
}

pub(super) use named;
