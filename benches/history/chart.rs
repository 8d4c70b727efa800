//! The growth curves as a picture: a line for each measure, relative to the smallest store.

use std::path::Path;

use plotters::prelude::*;

/// A measure: its name, and its value for each size.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(u64, f64)>,
}

const SIZE: (u32, u32) = (900, 520);

/// Writes an SVG file. Both axes are logarithmic: a flat line is a cost that does not grow, a straight
/// one with slope 1 a cost that grows with the store.
pub(crate) fn draw(path: &Path, curves: &[Curve]) -> Result<(), Box<dyn std::error::Error>> {
    let relative = |curve: &Curve| -> Vec<(f64, f64)> {
        let first = curve.points.first().map_or(1.0, |point| point.1);
        curve.points.iter().map(|&(n, value)| (n as f64, value / first)).collect()
    };
    let all: Vec<(f64, f64)> = curves.iter().flat_map(relative).collect();
    let span = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (left, right) = span(&mut all.iter().map(|point| point.0));
    let (low, high) = span(&mut all.iter().map(|point| point.1));

    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("cost of one operation, relative to the smallest store", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(
            (left..right.max(left * 10.0)).log_scale(),
            ((low / 2.0).min(0.5)..(high * 2.0).max(10.0)).log_scale(),
        )?;
    chart.configure_mesh().x_desc("versions in the store").y_desc("times as much").draw()?;
    for (index, curve) in curves.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(relative(curve), color.stroke_width(2)).point_size(3))?
            .label(curve.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
