"""Figures that are saved, kept to be looked at."""


def drawn(module, monkeypatch):
    """Return a list that gets the figures that a module draws, laid out."""
    figures, save = [], module.save_picture

    def keep(draw, path, size=None):
        def kept(figure):
            draw(figure)
            figures.append(figure)

        save(kept, path, size)

    monkeypatch.setattr(module, "save_picture", keep)
    return figures


def require_on_page(box, figure):
    page = figure.bbox
    assert page.x0 <= box.x0 <= box.x1 <= page.x1
    assert page.y0 <= box.y0 <= box.y1 <= page.y1
