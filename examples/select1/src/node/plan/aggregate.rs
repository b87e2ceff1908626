//! One value over all rows.

use std::collections::HashSet;

use epoll_group::codec::proto::plan::AggrType;
use epoll_group::session::SessionError;

use super::eval::compare;
use super::exact::{Exact, QUOTIENT_DIGITS};
use super::infer;
use super::refuse;
use super::value::{Num, Val};
use crate::node::columns::{Description, Type};

/// An aggregate function, and its state so far.
#[derive(Debug)]
pub(super) struct Aggregate {
    function: AggrType,
    ty: Type,
    moment: Option<Type>,
    seen: Option<HashSet<Key>>,
    seen_bytes: usize,
    count: u64,
    sum: Sum,
    best: Option<Val<'static>>,
}

#[derive(Clone, Copy, Debug)]
enum Sum {
    Exact(Exact),
    Double(f64),
}

/// A value in a form that is the same for equal values.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Exact(i128, u8),
    Double(u64),
    Text(Box<[u8]>),
}

/// Most bytes of different values that are kept.
const MOST_BYTES: usize = 64 << 20;

/// Digits that a sum has more than what is added up, as in MySQL.
const SUM_DIGITS: u8 = 22;

impl Aggregate {
    /// Over values of type `over`.
    pub(super) fn new(function: AggrType, over: &Type) -> Result<Self, SessionError> {
        use AggrType as F;
        let is_sum =
            matches!(function, F::SumFunc | F::SumDistinctFunc | F::AvgFunc | F::AvgDistinctFunc);
        if is_sum && over.is_temporal() {
            return Err(refuse("AGGR: the sum of points in time"));
        }
        let is_exact = !over.is_inexact();
        let ty = match function {
            F::CountFunc | F::CountDistinctFunc => Type::BIGINT,
            F::SumFunc | F::SumDistinctFunc if is_exact => {
                Type::exact(over.digits().saturating_add(SUM_DIGITS), over.scale())
            }
            F::AvgFunc | F::AvgDistinctFunc if is_exact => Type::exact(
                over.digits().saturating_add(QUOTIENT_DIGITS),
                over.scale().saturating_add(QUOTIENT_DIGITS),
            ),
            F::MinFunc | F::MaxFunc => *over,
            _ => Type::Double,
        };
        let is_distinct =
            matches!(function, F::CountDistinctFunc | F::SumDistinctFunc | F::AvgDistinctFunc);
        Ok(Self {
            function,
            ty,
            moment: infer::moment(over, over)?,
            seen: is_distinct.then(HashSet::new),
            seen_bytes: 0,
            count: 0,
            sum: if is_exact { Sum::Exact(Exact::ZERO) } else { Sum::Double(0.0) },
            best: None,
        })
    }

    /// Describes the result under this name.
    pub(super) fn field(&self, name: &str) -> Description {
        let mut field = Description::expression(name, Some(self.ty));
        let is_count = matches!(self.function, AggrType::CountFunc | AggrType::CountDistinctFunc);
        field.facts.not_null = is_count;
        field
    }

    /// One row more. NULL does not count.
    pub(super) fn add(&mut self, value: &Val<'_>) -> Result<(), SessionError> {
        let Some(number) = value.number() else { return Ok(()) };
        if let Some(seen) = &mut self.seen {
            let key = Key::of(value, number);
            let bytes = key.bytes();
            if !seen.insert(key) {
                return Ok(());
            }
            self.seen_bytes += bytes;
            if self.seen_bytes > MOST_BYTES {
                return Err(refuse(format_args!(
                    "AGGR: more than {MOST_BYTES} bytes of different values"
                )));
            }
        }
        self.count += 1;
        match self.function {
            AggrType::CountFunc | AggrType::CountDistinctFunc => Ok(()),
            AggrType::MinFunc | AggrType::MaxFunc => self.choose(value),
            _ => self.sum(number),
        }
    }

    fn choose(&mut self, value: &Val<'_>) -> Result<(), SessionError> {
        let is_better = match &self.best {
            None => true,
            Some(best) => {
                let order = compare(value, best, self.moment.as_ref())?;
                if self.function == AggrType::MinFunc { order.is_lt() } else { order.is_gt() }
            }
        };
        if is_better {
            self.best = Some(value.clone().into_owned());
        }
        Ok(())
    }

    fn sum(&mut self, number: Num) -> Result<(), SessionError> {
        self.sum = match self.sum {
            Sum::Exact(sum) => {
                let sum = number.to_exact().and_then(|number| sum.add(number));
                Sum::Exact(sum.ok_or_else(|| refuse("AGGR: DECIMAL value is out of range"))?)
            }
            Sum::Double(sum) => Sum::Double(sum + number.to_f64()),
        };
        Ok(())
    }

    /// Returns the result.
    pub(super) fn result(&self) -> Result<Val<'static>, SessionError> {
        use AggrType as F;
        let is_mean = matches!(self.function, F::AvgFunc | F::AvgDistinctFunc);
        match self.function {
            F::CountFunc | F::CountDistinctFunc => Ok(Val::Uint(self.count)),
            F::MinFunc | F::MaxFunc => Ok(self.best.clone().unwrap_or(Val::Null)),
            _ if self.count == 0 => Ok(Val::Null),
            _ => Ok(match self.sum {
                Sum::Exact(sum) if is_mean => {
                    // The sum has the scale of the values; the quotient gets more digits.
                    let sum = sum.rescale(self.ty.scale().saturating_sub(QUOTIENT_DIGITS));
                    let mean = sum.and_then(|sum| sum.div(Exact::new(self.count.into(), 0)));
                    Val::Exact(mean.ok_or_else(|| refuse("AGGR: DECIMAL value is out of range"))?)
                }
                Sum::Double(sum) if is_mean => Val::Double(sum / self.count as f64),
                Sum::Exact(sum) => Val::Exact(sum),
                Sum::Double(sum) => Val::Double(sum),
            }),
        }
    }
}

impl Key {
    fn of(value: &Val<'_>, number: Num) -> Self {
        if let Val::Text(text) = value {
            return Self::Text(text.as_ref().into());
        }
        match number.to_exact() {
            Some(exact) => {
                let (coefficient, scale) = exact.normal();
                Self::Exact(coefficient, scale)
            }
            // There are two zeros.
            None => Self::Double((number.to_f64() + 0.0).to_bits()),
        }
    }

    fn bytes(&self) -> usize {
        let text = if let Self::Text(text) = self { text.len() } else { 0 };
        size_of::<Self>() + text
    }
}
