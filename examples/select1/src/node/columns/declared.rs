//! Types as the definition of a table names them.

use epoll_group::codec::proto::resultset::OriginalType;

use super::{Domain, Type};
use crate::node::dialect::quoted;

impl Type {
    /// The type of a declaration such as `bigint(20) unsigned`. What is unknown is a text.
    pub fn declared(declaration: &str) -> Self {
        if let Some(domain) = Domain::declared(declaration) {
            return domain.kind();
        }
        let lower = declaration.to_ascii_lowercase();
        let (name, rest) = match lower.split_once('(') {
            Some((name, rest)) => (name.trim(), rest),
            None => (lower.trim(), ""),
        };
        let (arguments, rest) = rest.split_once(')').unwrap_or(("", rest));
        let mut arguments = arguments.split(',').map(|argument| argument.trim().parse().ok());
        let first: Option<u32> = arguments.next().flatten();
        let second: Option<u32> = arguments.next().flatten();
        let mut words = name.split_whitespace().chain(rest.split_whitespace());
        let base = words.next().unwrap_or_default();
        let unsigned = words.clone().any(|word| word == "unsigned" || word == "zerofill");
        let int = |kind| if unsigned { Self::Unsigned(kind) } else { Self::Signed(kind) };
        let digits = fraction(first);
        match base {
            "tinyint" | "bool" | "boolean" => int(OriginalType::MysqlTypeTiny),
            "smallint" | "int2" => int(OriginalType::MysqlTypeShort),
            "mediumint" => int(OriginalType::MysqlTypeInt24),
            "int" | "integer" | "int4" => int(OriginalType::MysqlTypeLong),
            "bigint" | "int8" => int(OriginalType::MysqlTypeLonglong),
            "serial" => Self::Unsigned(OriginalType::MysqlTypeLonglong),
            // SQLite: `unsigned big int`.
            "unsigned" => Self::Unsigned(OriginalType::MysqlTypeLonglong),
            "year" => Self::Year,
            "float" => Self::Float,
            "double" | "real" => Self::Double,
            "decimal" | "numeric" | "dec" | "fixed" => {
                let digits = first.unwrap_or(10).clamp(1, 65);
                let scale = second.unwrap_or(0).min(30).min(digits);
                Self::Decimal { digits: digits as u8, scale: scale as u8 }
            }
            "date" => Self::Date,
            "datetime" => Self::DateTime(digits),
            "timestamp" => Self::Timestamp(digits),
            "time" => Self::Time(digits),
            "char" | "character" | "nchar" if !words.clone().any(|word| word == "varying") => {
                Self::Char(first.unwrap_or(1))
            }
            "varchar" | "nvarchar" | "char" | "character" | "nchar" => {
                Self::VarChar(first.unwrap_or(255))
            }
            "tinytext" => Self::Text(OriginalType::MysqlTypeTinyBlob, 255),
            "mediumtext" => Self::Text(OriginalType::MysqlTypeMediumBlob, (1 << 24) - 1),
            "longtext" => Self::Text(OriginalType::MysqlTypeLongBlob, u32::MAX),
            "binary" => Self::Binary(first.unwrap_or(1)),
            "varbinary" => Self::VarBinary(first.unwrap_or(255)),
            "tinyblob" => Self::Blob(OriginalType::MysqlTypeTinyBlob, 255),
            "blob" => Self::Blob(OriginalType::MysqlTypeBlob, 65_535),
            "mediumblob" => Self::Blob(OriginalType::MysqlTypeMediumBlob, (1 << 24) - 1),
            "longblob" => Self::Blob(OriginalType::MysqlTypeLongBlob, u32::MAX),
            "json" => Self::Json,
            _ => Self::Text(OriginalType::MysqlTypeBlob, 65_535),
        }
    }
}

/// Returns the constraint of a column of integers: SQLite would store any value in it, which then
/// has no place in a result. `None` for a column of another type.
pub fn range(column: &str, declaration: &str) -> Option<String> {
    let name = quoted(column);
    let sign = match Type::declared(declaration) {
        Type::Signed(_) => String::new(),
        Type::Unsigned(_) | Type::Year => format!(" and {name} >= 0"),
        _ => return None,
    };
    let holds = format!("{name} is null or typeof({name}) = 'integer'{sign}");
    // The function fails. IGNORE would pass over a check that does not hold.
    Some(format!(" check ({holds} or out_of_range({name}))"))
}

/// First words of the error of `out_of_range`.
pub const OUT_OF_RANGE: &str = "Out of range value for a column of integers: ";

fn fraction(digits: Option<u32>) -> u8 {
    digits.map_or(0, |digits| digits.min(6) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read_in_any_case_and_spacing() {
        let long = OriginalType::MysqlTypeLong;
        let cases = [
            ("INTEGER", Type::Signed(long)),
            ("int(11)", Type::Signed(long)),
            (" Int ( 10 )  UNSIGNED", Type::Unsigned(long)),
            ("bigint unsigned", Type::Unsigned(OriginalType::MysqlTypeLonglong)),
            ("CHAR(120)", Type::Char(120)),
            ("character varying(7)", Type::VarChar(7)),
            ("double precision", Type::Double),
            ("decimal", Type::Decimal { digits: 10, scale: 0 }),
            ("DECIMAL( 12 , 4 )", Type::Decimal { digits: 12, scale: 4 }),
            ("decimal(2,9)", Type::Decimal { digits: 2, scale: 2 }),
            ("datetime(3)", Type::DateTime(3)),
            ("something", Type::Text(OriginalType::MysqlTypeBlob, 65_535)),
            ("", Type::Text(OriginalType::MysqlTypeBlob, 65_535)),
            ("char(", Type::Char(1)),
            ("bit blob(9)", Type::Bit(9)),
            ("enum blob(61,6e6f)", Type::Enum(2)),
            ("set blob(61,6e6f)", Type::Set(4)),
        ];
        for (declaration, kind) in cases {
            assert_eq!(Type::declared(declaration), kind, "{declaration}");
        }
    }
}
