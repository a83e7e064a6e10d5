//! Converts dashboards to Grafana's JSON: schema 39 of Grafana 10.4, which later versions accept
//! too.
//!
//! The data source is a variable, so that a file can be imported anywhere.

use serde_json::{Map, Value, json};

use super::dashboard::{
    Dashboard, DashboardPanel, DashboardRow, DashboardVariable, PanelKind, PanelQuery,
};
use super::source::SourceKind;

const COLUMNS: u32 = 24;
const PANEL_HEIGHT: u32 = 8;
/// The value of `$host` when all nodes are selected.
const ALL_NODES: &str = ".*";

/// Returns the contents of the dashboard's file.
pub(super) fn text(dashboard: &Dashboard, source: SourceKind) -> String {
    let mut text = format!("{:#}", json(dashboard, source));
    text.push('\n');
    text
}

fn json(dashboard: &Dashboard, source: SourceKind) -> Value {
    json!({
        "id": null,
        "uid": format!("pegel-{}", dashboard.name),
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["pegel"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-15m", "to": "now"},
        "refresh": "10s",
        "timepicker": {"refresh_intervals": ["1s", "5s", "10s", "30s", "1m", "5m"]},
        "annotations": {"list": source.annotations()},
        "links": [{
            "type": "dashboards", "tags": ["pegel"], "title": "Pegel", "asDropdown": true,
            "includeVars": true, "keepTime": true, "targetBlank": false, "icon": "external link",
            "tooltip": "", "url": "",
        }],
        "templating": {"list": variables(dashboard, source)},
        "panels": PanelLayout::new(source).rows(dashboard.rows),
    })
}

fn variables(dashboard: &Dashboard, kind: SourceKind) -> Vec<Value> {
    let source = json!({
        "type": "datasource", "name": "datasource", "label": "Data source", "query": kind.plugin(),
        "current": {"text": "Pegel", "value": "pegel"}, "hide": 0, "includeAll": false,
        "multi": false, "options": [], "refresh": 1, "regex": "", "skipUrlSync": false,
    });
    // The agent's own metrics exist at every level, so that every node has this one.
    let nodes = DashboardVariable::Query {
        name: "host",
        label: "Nodes",
        query: "tag_values(pegel_cpu_seconds_total, host)",
        promql: Some("label_values(pegel_cpu_seconds_total, instance)"),
        regex: "",
        initial_value: "All",
    };
    let queries = std::iter::once(&nodes).chain(dashboard.variables);
    std::iter::once(source)
        .chain(queries.filter_map(|one| variable(one, kind)))
        .collect()
}

/// Returns a variable; `None` if the data source has no use for it.
fn variable(variable: &DashboardVariable, source: SourceKind) -> Option<Value> {
    Some(match variable {
        DashboardVariable::Query {
            name,
            label,
            query,
            promql,
            regex,
            initial_value,
        } => {
            let query = match source {
                SourceKind::Opentsdb => query,
                SourceKind::Prometheus => promql.as_ref()?,
            };
            let has_all = *initial_value == "All";
            let current = if has_all {
                json!({"selected": true, "text": ["All"], "value": ["$__all"]})
            } else {
                json!({"selected": true, "text": initial_value, "value": initial_value})
            };
            let mut variable = json!({
                "type": "query", "name": name, "label": label, "query": query, "definition": query,
                "datasource": source.reference(), "regex": regex, "current": current, "hide": 0,
                "includeAll": has_all, "multi": has_all,
                "options": [], "refresh": 2, "sort": 5, "skipUrlSync": false,
            });
            // Rows repeat by metric; nodes are a filter, for which one expression can match all.
            if *name == "host" {
                variable["allValue"] = json!(ALL_NODES);
            }
            variable
        }
        DashboardVariable::Text { name, label } => json!({
            "type": "textbox", "name": name, "label": label, "query": "", "hide": 0,
            "current": {"selected": true, "text": "", "value": ""},
            "options": [{"selected": true, "text": "", "value": ""}], "skipUrlSync": false,
        }),
    })
}

/// Assigns positions and ids to panels.
#[derive(Debug)]
struct PanelLayout {
    source: SourceKind,
    last_id: u32,
    x: u32,
    y: u32,
    /// Height of the current line.
    row_height: u32,
}

impl PanelLayout {
    fn new(source: SourceKind) -> PanelLayout {
        PanelLayout {
            source,
            last_id: 0,
            x: 0,
            y: 0,
            row_height: 0,
        }
    }

    fn rows(mut self, rows: &[DashboardRow]) -> Vec<Value> {
        let mut panels = Vec::new();
        for row in rows {
            let position = self.allocate(COLUMNS, 1);
            let inner: Vec<Value> = row.panels.iter().map(|panel| self.panel(panel)).collect();
            self.finish_row();
            let id = self.next_id();
            // Grafana nests the panels of a collapsed row in it, and lists those of an expanded one
            // after it.
            let (nested, following) = if row.is_collapsed {
                (inner, Vec::new())
            } else {
                (Vec::new(), inner)
            };
            let mut header = json!({
                "type": "row", "id": id, "title": row.title, "gridPos": position,
                "collapsed": row.is_collapsed, "panels": nested,
            });
            if let Some(variable) = row.repeat {
                header["repeat"] = json!(variable);
            }
            panels.push(header);
            panels.extend(following);
        }
        panels
    }

    fn panel(&mut self, panel: &DashboardPanel) -> Value {
        let height = match panel.kind {
            PanelKind::TimeSeries => PANEL_HEIGHT,
            PanelKind::Stat => PANEL_HEIGHT / 2,
        };
        let position = self.allocate(panel.width, height);
        let queries = panel.queries.iter().zip('A'..='Z');
        let targets: Vec<Value> = queries
            .map(|(query, id)| self.source.target(&PanelQuery::parse(query), id))
            .collect();
        json!({
            "type": match panel.kind {
                PanelKind::TimeSeries => "timeseries",
                PanelKind::Stat => "stat",
            },
            "id": self.next_id(), "title": panel.title, "description": panel.description,
            "datasource": self.source.reference(), "gridPos": position, "interval": "1s",
            "fieldConfig": {"defaults": field_config(panel), "overrides": []},
            "options": options(panel), "targets": targets,
        })
    }

    /// Places panels from left to right, in lines of equal height.
    fn allocate(&mut self, width: u32, height: u32) -> Value {
        if self.x + width > COLUMNS {
            self.finish_row();
        }
        let position = json!({"x": self.x, "y": self.y, "w": width, "h": height});
        self.x += width;
        self.row_height = self.row_height.max(height);
        if self.x >= COLUMNS {
            self.finish_row();
        }
        position
    }

    fn finish_row(&mut self) {
        self.y += self.row_height;
        (self.x, self.row_height) = (0, 0);
    }

    fn next_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }
}

fn field_config(panel: &DashboardPanel) -> Value {
    let mut fields = Map::new();
    fields.insert("unit".into(), json!(panel.unit));
    let is_signed = panel.unit == "celsius";
    if !is_signed {
        fields.insert("min".into(), json!(0));
    }
    if let Some(max) = panel.max {
        fields.insert("max".into(), json!(max));
    }
    let mut steps = vec![json!({"color": "green", "value": null})];
    if let Some((yellow, red)) = panel.thresholds {
        steps.push(json!({"color": "yellow", "value": yellow}));
        steps.push(json!({"color": "red", "value": red}));
    }
    fields.insert(
        "thresholds".into(),
        json!({"mode": "absolute", "steps": steps}),
    );
    if panel.kind == PanelKind::TimeSeries {
        let style = match panel.thresholds {
            Some(_) => "dashed",
            None => "off",
        };
        fields.insert("color".into(), json!({"mode": "palette-classic"}));
        fields.insert(
            "custom".into(),
            json!({
                "drawStyle": "line", "lineWidth": 1, "fillOpacity": 5, "showPoints": "auto",
                "pointSize": 4, "spanNulls": false, "stacking": {"mode": "none", "group": "A"},
                "thresholdsStyle": {"mode": style},
            }),
        );
    } else {
        fields.insert("color".into(), json!({"mode": "thresholds"}));
    }
    Value::Object(fields)
}

fn options(panel: &DashboardPanel) -> Value {
    match panel.kind {
        PanelKind::TimeSeries => json!({
            "legend": {
                "showLegend": true, "displayMode": "table", "placement": "bottom",
                "calcs": ["lastNotNull", "max"], "sortBy": "Last *", "sortDesc": true,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }),
        PanelKind::Stat => json!({
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
            "colorMode": "value", "graphMode": "area", "justifyMode": "auto",
            "orientation": "auto", "textMode": "value_and_name",
        }),
    }
}
