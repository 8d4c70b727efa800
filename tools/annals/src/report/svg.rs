//! The few shapes that plots are made of. Colours are those of the page's style, by class.

use std::fmt::Write as _;

/// A text that is no markup, whatever is in it.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // No page may have these, not even as references.
            c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Where a text is held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing.
#[derive(Debug)]
pub(crate) struct Svg {
    size: (f64, f64),
    shapes: String,
}

impl Svg {
    /// An empty one of so many units in width and height.
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self { size: (width, height), shapes: String::new() }
    }

    /// A box, with what is said of it when it is pointed at.
    pub(crate) fn rect(&mut self, class: &str, (x, y): (f64, f64), (w, h): (f64, f64), said: &str) {
        let _ = writeln!(
            self.shapes,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}"><title>{}</title></rect>"#,
            w.max(0.0),
            h.max(0.0),
            escaped(said)
        );
    }

    /// A line.
    pub(crate) fn line(&mut self, class: &str, (x, y): (f64, f64), (to_x, to_y): (f64, f64)) {
        let _ = writeln!(
            self.shapes,
            r#"<line class="{class}" x1="{x:.1}" y1="{y:.1}" x2="{to_x:.1}" y2="{to_y:.1}"/>"#
        );
    }

    /// A text on its base line.
    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.shapes,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escaped(text)
        );
    }

    /// The drawing, named for those who cannot see it.
    pub(crate) fn end(self, name: &str) -> String {
        let (width, height) = self.size;
        format!(
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            escaped(name),
            self.shapes
        )
    }
}
