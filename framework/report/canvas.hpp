#pragma once
/// A page to draw on: the few cairo calls that the pictures need, in units of which a PNG has `scale` pixels.

#include <cairo.h>

#include <memory>
#include <string>
#include <vector>

#include "wengert/table_metrics.hpp"

namespace wengert::report {

struct Colour {
  double red, green, blue;
};

/// The diverging colour map: -1 dark blue, 0 near white, 1 dark red; clamped outside, grey for NaN.
Colour diverging(double value);
/// Colours for curves that people with colour-blindness can tell apart (Okabe and Ito, 2008).
Colour curve_colour(std::size_t index);

enum class Align { left, centre, right };

struct Point {
  double x, y;
};

class Canvas {
 public:
  Canvas(double width, double height, double scale);

  struct TextStyle {
    double size = 11.0;
    Align align = Align::left;
    bool bold = false;
    bool upwards = false;  ///< turned by 90 degrees, to be read from below
  };
  /// `at` is the left end, centre or right end of the base line.
  void text(const std::string& text, Point at, const TextStyle& style);
  double text_width(const std::string& text, double size, bool bold);
  void line(Point from, Point to, double width = 1.0, Colour colour = {0.35, 0.35, 0.35});
  void polyline(const std::vector<Point>& points, double width, Colour colour);
  void frame(Point top_left, double width, double height);
  /// The cells of `values` / `limit` through the colour map, stretched over the rectangle.
  void cells(const Matrix& values, double limit, Point top_left, double width, double height);
  /// Draws outside of the rectangle are cut off until `unclip`.
  void clip(Point top_left, double width, double height);
  void unclip();
  /// The picture as a PNG file's bytes. Throws IoError when cairo could not draw it.
  std::string png() const;

 private:
  struct Release {
    void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
    void operator()(cairo_t* context) const { cairo_destroy(context); }
  };
  void select_font(double size, bool bold);
  std::unique_ptr<cairo_surface_t, Release> surface_;
  std::unique_ptr<cairo_t, Release> context_;
};

}  // namespace wengert::report
