-- The object that a command has written.

ALTER TABLE commands ADD COLUMN subject TEXT;
