//! Enumerations whose values are published as text: label values, keys in `/status`.

/// Declares an enumeration with the text of each value, the list of all values and `as_str`.
#[macro_export]
macro_rules! label_enum {
    ($(#[$meta:meta])* $visibility:vis $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $visibility enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Returns the label value under which it is published.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}
