# -*- coding: latin-1 -*-
name = 'café'
x = 1
