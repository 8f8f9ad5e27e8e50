"""Find faces. One decode for every RetinaFace net; which net answers is chosen once, by ``make_detector``."""
