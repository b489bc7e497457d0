/* expect: no compile. Nothing to link. */

