#include "canvas.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

namespace wengert::report {

Colour diverging(double value) {
  static constexpr std::array<Colour, 9> anchors = {{{0.03, 0.16, 0.38},
                                                     {0.11, 0.38, 0.65},
                                                     {0.38, 0.64, 0.82},
                                                     {0.75, 0.87, 0.94},
                                                     {0.97, 0.97, 0.96},
                                                     {0.98, 0.83, 0.75},
                                                     {0.93, 0.55, 0.43},
                                                     {0.76, 0.19, 0.21},
                                                     {0.42, 0.02, 0.13}}};
  if (std::isnan(value)) return {0.6, 0.6, 0.6};
  const double place = (std::clamp(value, -1.0, 1.0) + 1) / 2 * (anchors.size() - 1);
  const auto left = std::min(static_cast<std::size_t>(place), anchors.size() - 2);
  const double share = place - static_cast<double>(left);
  const Colour &a = anchors[left], &b = anchors[left + 1];
  return {a.red + share * (b.red - a.red), a.green + share * (b.green - a.green), a.blue + share * (b.blue - a.blue)};
}

Colour curve_colour(std::size_t index) {
  static constexpr std::array<Colour, 6> colours = {{{0.00, 0.45, 0.70},
                                                     {0.84, 0.37, 0.00},
                                                     {0.00, 0.62, 0.45},
                                                     {0.80, 0.47, 0.65},
                                                     {0.90, 0.62, 0.00},
                                                     {0.34, 0.71, 0.91}}};
  return colours[index % colours.size()];
}

Canvas::Canvas(double width, double height, double scale)
    : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(std::ceil(width * scale)),
                                          static_cast<int>(std::ceil(height * scale)))),
      context_(cairo_create(surface_.get())) {
  cairo_set_source_rgb(context_.get(), 1, 1, 1);
  cairo_paint(context_.get());
  cairo_scale(context_.get(), scale, scale);
  cairo_set_line_join(context_.get(), CAIRO_LINE_JOIN_ROUND);
}

void Canvas::select_font(double size, bool bold) {
  cairo_select_font_face(context_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(context_.get(), size);
}

double Canvas::text_width(const std::string& text, double size, bool bold) {
  select_font(size, bold);
  cairo_text_extents_t extents;
  cairo_text_extents(context_.get(), text.c_str(), &extents);
  return extents.x_advance;
}

void Canvas::text(const std::string& text, Point at, const TextStyle& style) {
  const double width = text_width(text, style.size, style.bold);
  const double shift = style.align == Align::left ? 0.0 : style.align == Align::centre ? width / 2 : width;
  cairo_save(context_.get());
  cairo_translate(context_.get(), at.x, at.y);
  if (style.upwards) cairo_rotate(context_.get(), -std::numbers::pi / 2);
  cairo_move_to(context_.get(), -shift, 0);
  cairo_set_source_rgb(context_.get(), 0.1, 0.1, 0.1);
  cairo_show_text(context_.get(), text.c_str());
  cairo_restore(context_.get());
}

void Canvas::line(Point from, Point to, double width, Colour colour) { polyline({from, to}, width, colour); }

void Canvas::polyline(const std::vector<Point>& points, double width, Colour colour) {
  bool drawing = false;
  for (const Point& point : points) {
    const bool finite = std::isfinite(point.x) && std::isfinite(point.y);
    if (finite && drawing) cairo_line_to(context_.get(), point.x, point.y);
    if (finite && !drawing) cairo_move_to(context_.get(), point.x, point.y);
    drawing = finite;
  }
  cairo_set_source_rgb(context_.get(), colour.red, colour.green, colour.blue);
  cairo_set_line_width(context_.get(), width);
  cairo_stroke(context_.get());
}

void Canvas::frame(Point top_left, double width, double height) {
  cairo_rectangle(context_.get(), top_left.x, top_left.y, width, height);
  cairo_set_source_rgb(context_.get(), 0.35, 0.35, 0.35);
  cairo_set_line_width(context_.get(), 1.0);
  cairo_stroke(context_.get());
}

void Canvas::cells(const Matrix& values, double limit, Point top_left, double width, double height) {
  const auto cols = static_cast<int>(values.cols), rows = static_cast<int>(values.rows);
  const std::unique_ptr<cairo_surface_t, Release> image(cairo_image_surface_create(CAIRO_FORMAT_RGB24, cols, rows));
  cairo_surface_flush(image.get());
  unsigned char* bytes = cairo_image_surface_get_data(image.get());
  const int stride = cairo_image_surface_get_stride(image.get());
  if (!bytes) throw IoError("Figure: cannot draw a heatmap of shape " + Shape({values.rows, values.cols}).str());
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) {
      const Colour colour = diverging(values(i, j) / limit);
      const auto byte = [](double share) { return static_cast<std::uint32_t>(std::lround(share * 255)); };
      const std::uint32_t pixel = byte(colour.red) << 16 | byte(colour.green) << 8 | byte(colour.blue);
      std::memcpy(bytes + i * stride + j * 4, &pixel, 4);
    }
  }
  cairo_surface_mark_dirty(image.get());
  cairo_save(context_.get());
  cairo_rectangle(context_.get(), top_left.x, top_left.y, width, height);
  cairo_clip(context_.get());
  cairo_translate(context_.get(), top_left.x, top_left.y);
  cairo_scale(context_.get(), width / cols, height / rows);
  cairo_set_source_surface(context_.get(), image.get(), 0, 0);
  // Cells larger than pixels keep sharp edges; smaller ones are averaged.
  const bool enlarged = cols <= width && rows <= height;
  cairo_pattern_set_filter(cairo_get_source(context_.get()), enlarged ? CAIRO_FILTER_NEAREST : CAIRO_FILTER_GOOD);
  cairo_paint(context_.get());
  cairo_restore(context_.get());
}

void Canvas::clip(Point top_left, double width, double height) {
  cairo_save(context_.get());
  cairo_rectangle(context_.get(), top_left.x, top_left.y, width, height);
  cairo_clip(context_.get());
}

void Canvas::unclip() { cairo_restore(context_.get()); }

std::string Canvas::png() const {
  std::string bytes;
  const auto append = [](void* target, const unsigned char* data, unsigned length) {
    static_cast<std::string*>(target)->append(reinterpret_cast<const char*>(data), length);
    return CAIRO_STATUS_SUCCESS;
  };
  cairo_status_t status = cairo_status(context_.get());
  if (status == CAIRO_STATUS_SUCCESS) status = cairo_surface_write_to_png_stream(surface_.get(), append, &bytes);
  if (status != CAIRO_STATUS_SUCCESS)
    throw IoError(std::string("Figure: cannot draw: ") + cairo_status_to_string(status));
  return bytes;
}

}  // namespace wengert::report
