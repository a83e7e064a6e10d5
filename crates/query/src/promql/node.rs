//! The checked form of an expression. Parentheses are gone, times are absolute, and every function
//! and operator is resolved.

use pegel_metric::Millis;

use super::functions::Function;
use super::matcher::LabelMatcher;
use super::positions::CallPosition;
use super::steps::TimeShift;

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueType {
    Scalar,
    Vector,
    Matrix,
    Text,
}

impl ValueType {
    /// Returns the name in Prometheus' messages about arguments.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ValueType::Scalar => "scalar",
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
            ValueType::Text => "string",
        }
    }
}

/// One node of an expression.
#[derive(Debug)]
pub(crate) enum ExprNode {
    Number(f64),
    Text(String),
    Selector(VectorSelector),
    Range(RangeNode),
    Call(CallNode),
    Aggregate(AggregateNode),
    Binary(Box<BinaryNode>),
    Negate(Box<ExprNode>),
    /// A node with the same value at every step: it is evaluated once.
    Constant(Box<ExprNode>),
}

#[derive(Debug)]
pub(crate) struct VectorSelector {
    pub matchers: Vec<LabelMatcher>,
    pub shift: TimeShift,
}

/// A range vector: `selector[range]` or `expression[range:step]`.
#[derive(Debug)]
pub(crate) struct RangeNode {
    pub input: RangeInput,
    pub range: Millis,
    pub shift: TimeShift,
}

#[derive(Debug)]
pub(crate) enum RangeInput {
    Selector(Vec<LabelMatcher>),
    Subquery {
        expression: Box<ExprNode>,
        step: Millis,
    },
}

#[derive(Debug)]
pub(crate) struct CallNode {
    pub function: &'static Function,
    pub arguments: Vec<ExprNode>,
    pub position: CallPosition,
}

#[derive(Debug)]
pub(crate) struct AggregateNode {
    pub operation: AggregateOperation,
    pub parameter: Option<Box<ExprNode>>,
    pub expression: Box<ExprNode>,
    pub grouping: Grouping,
    pub position: CallPosition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregateOperation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    Quantile,
    CountValues,
    TopK,
    BottomK,
    LimitK,
    LimitRatio,
}

impl AggregateOperation {
    pub(crate) fn parse(name: &str) -> Option<AggregateOperation> {
        Some(match name {
            "sum" => AggregateOperation::Sum,
            "avg" => AggregateOperation::Avg,
            "min" => AggregateOperation::Min,
            "max" => AggregateOperation::Max,
            "count" => AggregateOperation::Count,
            "group" => AggregateOperation::Group,
            "stddev" => AggregateOperation::Stddev,
            "stdvar" => AggregateOperation::Stdvar,
            "quantile" => AggregateOperation::Quantile,
            "count_values" => AggregateOperation::CountValues,
            "topk" => AggregateOperation::TopK,
            "bottomk" => AggregateOperation::BottomK,
            "limitk" => AggregateOperation::LimitK,
            "limit_ratio" => AggregateOperation::LimitRatio,
            _ => return None,
        })
    }
}

/// The labels by which series are grouped or matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grouping {
    /// Only these labels.
    By(Vec<String>),
    /// All labels but these and the name.
    Without(Vec<String>),
}

#[derive(Debug)]
pub(crate) struct BinaryNode {
    pub operator: Operator,
    pub left: ExprNode,
    pub right: ExprNode,
    /// Comparisons return 0 or 1 instead of filtering.
    pub returns_bool: bool,
    pub matching: VectorMatching,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    And,
    Or,
    Unless,
}

/// The symbols of operators.
const OPERATORS: [(&str, Operator); 16] = [
    ("+", Operator::Add),
    ("-", Operator::Sub),
    ("*", Operator::Mul),
    ("/", Operator::Div),
    ("%", Operator::Mod),
    ("^", Operator::Pow),
    ("atan2", Operator::Atan2),
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    (">", Operator::Greater),
    (">=", Operator::GreaterEqual),
    ("<", Operator::Less),
    ("<=", Operator::LessEqual),
    ("and", Operator::And),
    ("or", Operator::Or),
    ("unless", Operator::Unless),
];

impl Operator {
    pub(crate) fn parse(symbol: &str) -> Option<Operator> {
        let found = OPERATORS.iter().find(|(known, _)| *known == symbol);
        found.map(|(_, operator)| *operator)
    }

    pub(crate) fn symbol(self) -> &'static str {
        let found = OPERATORS.iter().find(|(_, known)| *known == self);
        found.map_or("", |(symbol, _)| symbol)
    }

    pub(crate) fn is_comparison(self) -> bool {
        matches!(
            self,
            Operator::Equal
                | Operator::NotEqual
                | Operator::Greater
                | Operator::GreaterEqual
                | Operator::Less
                | Operator::LessEqual
        )
    }

    pub(crate) fn is_set_operator(self) -> bool {
        matches!(self, Operator::And | Operator::Or | Operator::Unless)
    }
}

/// How the series of two vectors are matched.
#[derive(Debug, Clone)]
pub(crate) struct VectorMatching {
    /// The labels that must be equal.
    pub labels: Grouping,
    pub cardinality: Cardinality,
    /// The values for series without a match on the other side.
    pub fill_left: Option<f64>,
    pub fill_right: Option<f64>,
}

#[derive(Debug, Clone)]
pub(crate) enum Cardinality {
    OneToOne,
    /// `group_left`: the labels are taken from the right side.
    ManyToOne(Vec<String>),
    /// `group_right`: the labels are taken from the left side.
    OneToMany(Vec<String>),
}

impl ExprNode {
    pub(crate) fn value_type(&self) -> ValueType {
        match self {
            ExprNode::Number(_) => ValueType::Scalar,
            ExprNode::Text(_) => ValueType::Text,
            ExprNode::Selector(_) | ExprNode::Aggregate(_) => ValueType::Vector,
            ExprNode::Range(_) => ValueType::Matrix,
            ExprNode::Call(call) => call.function.returns,
            ExprNode::Binary(binary) => {
                let is_scalar = binary.left.value_type() == ValueType::Scalar
                    && binary.right.value_type() == ValueType::Scalar;
                if is_scalar {
                    ValueType::Scalar
                } else {
                    ValueType::Vector
                }
            }
            ExprNode::Negate(inner) | ExprNode::Constant(inner) => inner.value_type(),
        }
    }

    /// Returns the node inside of [`ExprNode::Constant`].
    pub(crate) fn unwrap_constant(&self) -> &ExprNode {
        match self {
            ExprNode::Constant(inner) => inner,
            other => other,
        }
    }
}
