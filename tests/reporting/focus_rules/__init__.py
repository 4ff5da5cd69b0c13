"""The rules of FOCUS 1.0 to 1.4 by which our exports are tested; `validator.check_focus_file` applies them."""
