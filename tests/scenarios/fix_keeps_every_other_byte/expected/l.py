# -*- coding: latin-1 -*-
name = 'café'
x = 2
y = 3
