x = 2 &amp;&amp; 3 < 4
